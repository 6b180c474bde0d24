// Package text makes texts that PostgreSQL stores (valid UTF-8 without NUL, and no longer than a column allows), and texts that are safe to show.
package text

import (
	"strings"
	"unicode/utf8"
)

// Storable replaces what PostgreSQL refuses in text and jsonb: NUL (22P05) and octets that are no UTF-8 (22021).
func Storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Octets is s, storable, with at most n octets. No character is cut in two.
func Octets(s string, n int) string {
	s = Storable(s)
	for len(s) > n {
		_, last := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-last]
	}
	return s
}

// Characters is s, storable, with at most n characters.
func Characters(s string, n int) string {
	s = Storable(s)
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}
