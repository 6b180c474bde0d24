package cli

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode"
)

// attack contains what a terminal would act on: colour, title, a reversed line, C1, a new line,
// invalid UTF-8, a tag.
const attack = "\x1b[31m\x1b]0;pwned\a\u202egnp.exe\u200f\u0085\x9b2J\n\r\t\x00\x7f\ufeff\U000e0041\\end"

// Attacks are escaped in JSON too, and the value stays the same.
func TestPrintJSON_DisarmsAttacks(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	valid := strings.ToValidUTF8(attack, "?")
	if err := printJSON(&out, map[string]string{"kind": valid}); err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSuffix(out.String(), "\n")
	if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%q at %d", line[i:], i)
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(line), &back); err != nil || back["kind"] != valid {
		t.Errorf("%q, %v", back, err)
	}
}

func TestPayloadLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args string
		want []string
	}{
		"empty":    {"", nil},
		"JSON":     {"{\n\t\"cents\": 1250\n}\n", []string{"{", `    "cents": 1250`, "}"}},
		"umlaut":   {"größer", []string{"größer"}},
		"CR":       {"a\r\nb", []string{`a\r`, "b"}},
		"escape":   {"a\x1b[2J", []string{"00000000  61 1b 5b 32 4a                                    |a.[2J|"}},
		"octets":   {"\xff\x00", []string{"00000000  ff 00                                             |..|"}},
		"long":     {strings.Repeat("a", 5000), []string{strings.Repeat("a", 4096), "… 904 more octets; --json prints all"}},
		"boundary": {strings.Repeat("a", 4095) + "ü", []string{strings.Repeat("a", 4095), "… 2 more octets; --json prints all"}},
	} {
		if got := payloadLines([]byte(c.args)); strings.Join(got, "\n") != strings.Join(c.want, "\n") || len(got) != len(c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := payloadLines([]byte(strings.Repeat("\x00", 1000))); len(got) != 9 || got[8] != "… 872 more octets; --json prints all" {
		t.Errorf("%q", got)
	}
}

// Only y and yes count as consent.
func TestAgreed(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, " y \n": true, "y": true, "\n": false, "": false, "n\n": false, "yep\n": false} {
		var out strings.Builder
		if got := agreed(t.Context(), strings.NewReader(answer), &out, "discard job 1? \x1b[2J[y/N] "); got != want {
			t.Errorf("%q is %v", answer, got)
		}
		if out.String() != `discard job 1? \x1b[2J[y/N] ` {
			t.Errorf("asked %q", out.String())
		}
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	in, hold := io.Pipe()
	defer hold.Close()
	if agreed(interrupted, in, io.Discard, "?") {
		t.Error("an interruption is a yes")
	}
}
