package text_test

import (
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/text"
)

// What PostgreSQL refuses is replaced, whatever it stands next to.
func TestStorable_ReplacesWhatPostgreSQLRefuses(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"plain": "plain", "a\x00b": "a\uFFFDb", "\xff": "\uFFFD", "é\xc3": "é\uFFFD", "": ""} {
		if got := text.Storable(given); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}

// A text is cut between characters, at the octet or at the character.
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
