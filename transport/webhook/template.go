package webhook

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// A template is the text that an HMAC signs before the body, with placeholders.
type template string

const (
	timestampHere = "{timestamp}"
	idHere        = "{id}"
	bodyHere      = "{body}"
)

// readTemplate refuses ambiguous texts and those that leave a timestamp unsigned.
func readTemplate(text string, hasTime, hasID bool) (template, error) {
	count := func(p string) int { return strings.Count(text, p) }
	switch {
	case !strings.HasSuffix(text, bodyHere) || count(bodyHere) != 1 || count(timestampHere) > 1 || count(idHere) > 1:
		return "", fmt.Errorf("the signed text %q must end with %s and have each placeholder once", text, bodyHere)
	case hasTime && count(timestampHere) == 0:
		return "", fmt.Errorf("there is a timestamp header, but %q does not sign it: it could be replaced", text)
	case !hasTime && count(timestampHere) == 1, !hasID && count(idHere) == 1:
		return "", fmt.Errorf("%q signs a header that has no name", text)
	}
	for _, p := range []string{timestampHere, idHere} {
		_, behind, found := strings.Cut(text, p)
		begins := func(other string) bool { return strings.HasPrefix(behind, other) }
		if found && (slices.ContainsFunc([]string{timestampHere, idHere, bodyHere}, begins) || p == timestampHere && behind[0] >= '0' && behind[0] <= '9') {
			return "", fmt.Errorf("the text behind %s in %q does not end it: two requests could have the same signature", p, text)
		}
	}
	return template(strings.TrimSuffix(text, bodyHere)), nil
}

// afterID returns the octet that ends a signed id, so that no id may contain it, or "".
func (t template) afterID() string {
	_, behind, found := strings.Cut(string(t), idHere)
	if !found {
		return ""
	}
	return behind[:1]
}

// write replaces the timestamp first, because it holds digits only and no placeholder.
func (t template) write(w io.Writer, id, timestamp string, body []byte) {
	before := strings.Replace(string(t), timestampHere, timestamp, 1)
	_, _ = io.WriteString(w, strings.Replace(before, idHere, id, 1)) // a hash returns no error
	_, _ = w.Write(body)
}
