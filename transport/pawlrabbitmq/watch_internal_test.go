package pawlrabbitmq

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A source that has nothing is forgotten if its queue has no consumer, or if messages go on waiting. A busy neighbour of a single active consumer
// is given longer.
func TestForgotten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		single string
		looks  []amqp.Queue
		want   []bool
	}{
		{"known", "", []amqp.Queue{{Consumers: 1}, {Consumers: 3}}, []bool{false, false}},
		{"unknown", "", []amqp.Queue{{Consumers: 1}, {Consumers: 0}}, []bool{false, true}},
		{"passed over", "", []amqp.Queue{{Messages: 1, Consumers: 2}, {Messages: 1, Consumers: 2}}, []bool{false, true}},
		{"served in between", "", []amqp.Queue{{Messages: 1, Consumers: 2}, {Consumers: 2}, {Messages: 1, Consumers: 2}}, []bool{false, false, false}},
		{"waits behind the active one", "true", []amqp.Queue{{Messages: 9, Consumers: 2}, {Messages: 9, Consumers: 2}, {Messages: 9, Consumers: 2}}, []bool{false, false, false}},
	} {
		s := &Source{facts: facts{arguments: map[string]string{argSingle: c.single}}}
		one := &session{}
		for i, q := range c.looks {
			if got := s.forgotten(one, q); got != c.want[i] {
				t.Errorf("%s: look %d says %v", c.name, i+1, got)
			}
		}
	}
}
