package httpkey

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/pawl-go/pawl"
)

// KeyHeader carries the key of a request.
const KeyHeader = "Idempotency-Key"

// keyOf returns the key of a request, or "" if it has none.
func keyOf(r *http.Request) (string, error) {
	values := r.Header.Values(KeyHeader)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return parseKey(values[0])
	}
	return "", fmt.Errorf("%d keys were sent, not one", len(values))
}

// parseKey reads a quoted (RFC 8941, without parameters) or a bare key; both forms are the same
// key. A bare one has neither spaces nor commas, since a proxy may have joined several headers.
func parseKey(text string) (key string, err error) {
	if strings.HasPrefix(text, `"`) {
		key, err = unquote(text[1:])
	} else {
		key, err = text, checkBare(text)
	}
	switch {
	case err != nil:
		return "", err
	case key == "":
		return "", errors.New("the key is empty")
	case len(key) > pawl.MaxKey:
		return "", fmt.Errorf("the key has %d characters, at most %d are allowed", len(key), pawl.MaxKey)
	}
	return key, nil
}

func unquote(text string) (string, error) {
	var key strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && i == len(text)-1:
			return key.String(), nil
		case c == '"':
			return "", errors.New("something follows the closing quote of the key")
		case c == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			key.WriteByte(text[i])
		case c == '\\' || c < 0x20 || c > 0x7e:
			return "", fmt.Errorf("the character %q may not stand in a quoted key", c)
		default:
			key.WriteByte(c)
		}
	}
	return "", errors.New("the closing quote of the key is missing")
}

func checkBare(text string) error {
	for i := range len(text) {
		if c := text[i]; c <= 0x20 || c > 0x7e || c == ',' || c == '"' {
			return fmt.Errorf("the character %q may not stand in a bare key", c)
		}
	}
	return nil
}
