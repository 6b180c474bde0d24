package cli

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/pawl-go/pawl/internal/text"
)

// visibleJSON escapes as \uXXXX what encoding/json leaves: DEL, C1 controls, and marks that reverse
// text. They occur only inside strings, so the value stays the same.
func visibleJSON(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// shorten cuts text to limit characters and marks the cut.
func shorten(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit-1]) + "…"
}

const (
	payloadText  = 4096 // octets shown of a text payload
	payloadOctet = 128  // octets shown of another payload, in hex
)

// payloadLines shows a payload as text, or its first octets in hex if it is not text.
func payloadLines(args []byte) (lines []string) {
	if !isText(args) {
		first := args[:min(len(args), payloadOctet)]
		lines = strings.Split(strings.TrimSuffix(hex.Dump(first), "\n"), "\n")
		return cut(lines, len(args)-len(first))
	}
	first := args[:min(len(args), payloadText)]
	for len(first) > 0 && len(first) < len(args) && !utf8.Valid(first) {
		first = first[:len(first)-1] // do not cut inside a character
	}
	for line := range strings.Lines(string(first)) {
		line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")
		lines = append(lines, text.Visible(line))
	}
	return cut(lines, len(args)-len(first))
}

func cut(lines []string, rest int) []string {
	if rest > 0 {
		lines = append(lines, fmt.Sprintf("… %d more octets; --json prints all", rest))
	}
	return lines
}

func isText(args []byte) bool {
	return utf8.Valid(args) && bytes.IndexFunc(args, func(r rune) bool {
		return !unicode.IsPrint(r) && !strings.ContainsRune("\n\r\t", r)
	}) < 0
}
