package pawlnats

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/pawl-go/pawl"
)

// SubjectByType returns a [SinkConfig.SubjectOf] that makes the subject PREFIX.AGGREGATETYPE.TYPE,
// such as shop.order.OrderPlaced. Dots, white space, wildcards and control characters in a type
// become "_". A missing type becomes "none".
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

// checkSubject applies "Subject names" of the NATS documentation.
func checkSubject(subject string) error {
	for _, t := range strings.Split(subject, ".") {
		if t == "" || t == "*" || t == ">" || strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r == 0x7F }) {
			return fmt.Errorf("%q is no subject to publish to: its tokens must not be empty, be wildcards or contain white space", subject)
		}
	}
	if strings.HasPrefix(subject, "$") {
		return fmt.Errorf("%q is a subject of the server", subject)
	}
	return nil
}

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
