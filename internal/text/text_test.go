package text_test

import (
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/text"
)

// Bytes that PostgreSQL refuses are replaced, next to any others.
func TestStorable_ReplacesWhatPostgreSQLRefuses(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"plain": "plain", "a\x00b": "a\uFFFDb", "\xff": "\uFFFD", "é\xc3": "é\uFFFD", "": ""} {
		if got := text.Storable(given); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}

// A text is cut between characters, by bytes or by characters.
func TestCut_LeavesCharactersWhole(t *testing.T) {
	t.Parallel()
	if got := text.Octets("aéé", 4); got != "aé" {
		t.Errorf("octets: %q", got)
	}
	if got := text.Characters("aéé", 2); got != "aé" {
		t.Errorf("characters: %q", got)
	}
	long := strings.Repeat("é", 5000)
	if got := text.Characters(long, 4000); len(got) != 8000 {
		t.Errorf("%d octets of 4,000 characters", len(got))
	}
	if text.Octets("ab", 2) != "ab" || text.Characters("ab", 2) != "ab" {
		t.Error("a text that fits was cut")
	}
}

// Everything that a terminal would act on is escaped, and none of it is lost: colour, title, a
// reversed line, C1, a new line, invalid UTF-8, a tag character.
func TestVisible_DisarmsAttacks(t *testing.T) {
	t.Parallel()
	const attack = "\x1b[31m\x1b]0;pwned\a\u202egnp.exe\u200f\u0085\x9b2J\n\r\t\x00\x7f\ufeff\U000e0041\\end"
	const want = `\x1b[31m\x1b]0;pwned\a\u202egnp.exe\u200f\u0085\x9b2J\n\r\t\x00\x7f\ufeff\U000e0041\end`
	if got := text.Visible(attack); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, harmless := range []string{"", "order 17 → paid", "größer als 東京 🎉", `C:\temp`} {
		if got := text.Visible(harmless); got != harmless {
			t.Errorf("%q became %q", harmless, got)
		}
	}
}

// A shell reads a word back unchanged, if all of its characters are printable.
func TestShellWord(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"order-17": "order-17", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "a\nb": `'a\nb'`} {
		if got := text.ShellWord(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}
