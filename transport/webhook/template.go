package webhook

import (
	"fmt"
	"io"
	"strings"
)

// A template is the text that an HMAC signs: placeholders and the text between them.
type template []string

const (
	timestampHere = "{timestamp}"
	idHere        = "{id}"
	bodyHere      = "{body}"
)

// readTemplate refuses ambiguous texts and those that leave a timestamp unsigned.
func readTemplate(text string, hasTime, hasID bool) (t template, err error) {
	count := func(p string) int { return strings.Count(text, p) }
	switch {
	case !strings.HasSuffix(text, bodyHere) || count(bodyHere) != 1 || count(timestampHere) > 1 || count(idHere) > 1:
		return nil, fmt.Errorf("the signed text %q must end with %s and have each placeholder once", text, bodyHere)
	case hasTime && count(timestampHere) == 0:
		return nil, fmt.Errorf("there is a timestamp header, but %q does not sign it: it could be replaced", text)
	case !hasTime && count(timestampHere) == 1, !hasID && count(idHere) == 1:
		return nil, fmt.Errorf("%q signs a header that has no name", text)
	}
	for rest := text; rest != ""; {
		at, found := next(rest)
		if at > 0 {
			t = append(t, rest[:at])
		}
		t = append(t, found)
		rest = rest[at+len(found):]
	}
	for i, p := range t[:len(t)-1] {
		behind := t[i+1]
		if isPlaceholder(p) && (isPlaceholder(behind) || p == timestampHere && behind[0] >= '0' && behind[0] <= '9') {
			return nil, fmt.Errorf("the text behind %s in %q does not end it: two requests could have the same signature", p, text)
		}
	}
	return t, nil
}

func isPlaceholder(part string) bool {
	return part == timestampHere || part == idHere || part == bodyHere
}

// next finds the first placeholder. There is always one, since the text ends with {body}.
func next(text string) (at int, found string) {
	at = len(text)
	for _, p := range []string{timestampHere, idHere, bodyHere} {
		if i := strings.Index(text, p); i >= 0 && i < at {
			at, found = i, p
		}
	}
	return at, found
}

// afterID returns the octet that ends a signed id, so that no id may contain it, or "".
func (t template) afterID() string {
	for i, p := range t {
		if p == idHere {
			return t[i+1][:1]
		}
	}
	return ""
}

func (t template) write(w io.Writer, id, timestamp string, body []byte) {
	for _, p := range t {
		part := []byte(p)
		switch p {
		case timestampHere:
			part = []byte(timestamp)
		case idHere:
			part = []byte(id)
		case bodyHere:
			part = body
		}
		_, _ = w.Write(part) // a hash returns no error
	}
}
