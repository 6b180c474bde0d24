package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible makes text from the database safe to print. A kind, an actor or an error may contain
// characters that move the cursor, change colours, reverse the line or begin a new one. Visible
// writes them as Go escapes: \x1b, \u202e, \n.
func Visible(s string) string {
	var out strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, s[0])
		case unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			quoted := fmt.Sprintf("%+q", r)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return out.String()
}

// ShellWord quotes a word for a shell, if necessary.
func ShellWord(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,") == "" && word != "" {
		return word
	}
	return "'" + strings.ReplaceAll(Visible(word), "'", `'\''`) + "'"
}

// Plural returns a count with its noun: "1 job", "2 jobs".
func Plural[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
