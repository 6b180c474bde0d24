// Package jsonptr reads JSON documents at JSON pointers (RFC 6901).
package jsonptr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Check returns an error unless pointer is a JSON pointer (RFC 6901) to a member or an element.
func Check(pointer string) error {
	if pointer == "" || pointer[0] != '/' {
		return fmt.Errorf("the pointer %q must begin with a slash (RFC 6901)", pointer)
	}
	if strings.Contains(escapes.Replace(pointer), "~") {
		return fmt.Errorf("the pointer %q has a ~ that is neither ~0 nor ~1 (RFC 6901)", pointer)
	}
	return nil
}

var escapes = strings.NewReplacer("~0", "", "~1", "")

// tokens returns the unescaped tokens of a pointer that Check accepts. All functions but Check
// require such a pointer.
func tokens(pointer string) []string {
	all := strings.Split(pointer[1:], "/")
	for i, t := range all {
		all[i] = unescape.Replace(t)
	}
	return all
}

// unescape turns "~01" into "~1", because a Replacer does not scan its output again.
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// Decode parses one JSON document. Numbers keep their spelling.
func Decode(body []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return value, nil
}

// Find returns the value at a pointer; ok is false if there is none.
func Find(value any, pointer string) (found any, ok bool) {
	for _, t := range tokens(pointer) {
		if value, ok = step(value, t); !ok {
			return nil, false
		}
	}
	return value, true
}

func step(value any, token string) (child any, ok bool) {
	switch parent := value.(type) {
	case map[string]any:
		child, ok = parent[token]
	case []any:
		i, err := strconv.Atoi(token)
		if ok = err == nil && i >= 0 && i < len(parent) && strconv.Itoa(i) == token; ok {
			child = parent[i]
		}
	}
	return child, ok
}

// Remove deletes an object member. It keeps array elements, because deleting one would renumber the
// others.
func Remove(value any, pointer string) {
	all := tokens(pointer)
	for _, t := range all[:len(all)-1] {
		value, _ = step(value, t)
	}
	if object, ok := value.(map[string]any); ok {
		delete(object, all[len(all)-1])
	}
}

// TextAt returns the string or number at a pointer in a JSON body. Numbers keep their spelling.
func TextAt(body []byte, pointer string) (text string, ok bool) {
	document, err := Decode(body)
	if err != nil {
		return "", false
	}
	return TextIn(document, pointer)
}

// TextIn is TextAt for a document that Decode returned.
func TextIn(document any, pointer string) (text string, ok bool) {
	value, _ := Find(document, pointer)
	switch found := value.(type) {
	case string:
		return found, found != ""
	case json.Number:
		return found.String(), true
	}
	return "", false
}
