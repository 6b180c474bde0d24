package adapter

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// BinarySuffix marks attributes that are no text.
const BinarySuffix = ";base64"

// IsText reports whether PostgreSQL stores octets as a text: they are UTF-8 without a NUL.
func IsText[T ~string | ~[]byte](octets T) bool {
	return utf8.ValidString(string(octets)) && !strings.Contains(string(octets), "\x00")
}

// SetBinary adds an attribute that is no text.
func SetBinary(to map[string]string, name string, octets []byte) {
	to[name+BinarySuffix] = base64.StdEncoding.EncodeToString(octets)
}

// Binary returns the name and the octets of an attribute that [SetBinary] has added, and whether it
// is one.
func Binary(name, value string) (plain string, octets []byte, is bool) {
	plain, marked := strings.CutSuffix(name, BinarySuffix)
	if !marked {
		return name, nil, false
	}
	octets, err := base64.StdEncoding.DecodeString(value)
	return plain, octets, err == nil
}
