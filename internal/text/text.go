// Package text makes text storable in PostgreSQL (valid UTF-8, no NUL, no longer than the column
// allows) and safe to print.
package text

import (
	"strings"
	"unicode/utf8"
)

// Storable replaces NUL (22P05) and bytes that are not UTF-8 (22021), which PostgreSQL refuses in
// text and jsonb.
func Storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Octets returns s, storable, cut to at most n bytes between characters.
func Octets(s string, n int) string {
	s = Storable(s)
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Characters returns s, storable, cut to at most n characters.
func Characters(s string, n int) string {
	s = Storable(s)
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}
