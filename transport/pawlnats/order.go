package pawlnats

import "strings"

// BySubject is a [Config.OrderingKey] that orders the messages of one subject.
func BySubject(subject string) string { return subject }

// BySubjectToken returns a [Config.OrderingKey] that orders by the n-th token of the subject; the
// first is 1. With BySubjectToken(2), orders.17.paid and orders.17.shipped are in one order. A
// subject with fewer tokens has no order.
func BySubjectToken(n int) func(subject string) string {
	return func(subject string) string {
		tokens := strings.Split(subject, ".")
		if n < 1 || n > len(tokens) {
			return ""
		}
		return tokens[n-1]
	}
}
