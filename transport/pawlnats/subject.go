package pawlnats

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/pawl-go/pawl"
)

// SubjectByType makes the subject PREFIX.AGGREGATETYPE.TYPE of an event, such as shop.order.OrderPlaced. A dot, a blank or a wildcard in a type
// becomes "_", and a type that is missing is "none". It is for [SinkConfig.SubjectOf].
func SubjectByType(prefix string) func(m pawl.Message) string {
	return func(m pawl.Message) string {
		return prefix + "." + token(m.AggregateType) + "." + token(m.Type)
	}
}

func token(text string) string {
	return cmp.Or(strings.Map(func(r rune) rune {
		if r <= ' ' || r == '.' || r == '*' || r == '>' || r == 0x7F {
			return '_'
		}
		return r
	}, text), "none")
}

// checkSubject follows "Subject names" of the NATS documentation.
func checkSubject(subject string) error {
	for _, t := range strings.Split(subject, ".") {
		if t == "" || t == "*" || t == ">" || strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r == 0x7F }) {
			return fmt.Errorf("%q is no subject to publish to: tokens between dots are not empty, no wildcards, and have no white space", subject)
		}
	}
	if strings.HasPrefix(subject, "$") {
		return fmt.Errorf("%q is a subject of the server", subject)
	}
	return nil
}

// matches reports whether a stream's subject, with its wildcards, takes a subject.
func matches(pattern, subject string) bool {
	ps, ss := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, p := range ps {
		switch {
		case p == ">":
			return len(ss) > i
		case i >= len(ss), p != "*" && p != ss[i]:
			return false
		}
	}
	return len(ps) == len(ss)
}
