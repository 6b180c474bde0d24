package adapter

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// BinarySuffix marks binary attributes.
const BinarySuffix = ";base64"

// IsText reports whether PostgreSQL can store bytes as text: UTF-8 without NUL.
func IsText[T ~string | ~[]byte](octets T) bool {
	return utf8.ValidString(string(octets)) && !strings.Contains(string(octets), "\x00")
}

// SetBinary adds a binary attribute.
func SetBinary(to map[string]string, name string, octets []byte) {
	to[name+BinarySuffix] = base64.StdEncoding.EncodeToString(octets)
}

// Binary returns the name and the bytes of an attribute that [SetBinary] added. is is false for any
// other attribute.
func Binary(name, value string) (base string, octets []byte, is bool) {
	base, marked := strings.CutSuffix(name, BinarySuffix)
	if !marked {
		return name, nil, false
	}
	octets, err := base64.StdEncoding.DecodeString(value)
	return base, octets, err == nil
}
