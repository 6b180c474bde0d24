package pawlrabbitmq

import (
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// An idle source is forgotten if its queue has no consumer, or if messages wait for idleTime,
// however often it checks. Behind a single active consumer they may wait forever.
func TestForgotten(t *testing.T) {
	t.Parallel()
	type look struct {
		after time.Duration // since the check before
		queue amqp.Queue
		want  bool
	}
	empty, waits := amqp.Queue{Consumers: 2}, amqp.Queue{Messages: 9, Consumers: 2}
	for name, c := range map[string]struct {
		facts queueFacts
		looks []look
	}{
		"known":                 {queueFacts{}, []look{{0, amqp.Queue{Consumers: 1}, false}, {time.Hour, empty, false}}},
		"unknown":               {queueFacts{}, []look{{0, empty, false}, {0, amqp.Queue{}, true}}},
		"unknown, and it waits": {queueFacts{}, []look{{0, amqp.Queue{Messages: 9}, true}}},
		"passed over":           {queueFacts{}, []look{{0, waits, false}, {idleTime, waits, true}}},
		"passed over, looks often": {queueFacts{}, []look{{0, waits, false}, {minWait, waits, false}, {minWait, waits, false}, {minWait, waits, false},
			{idleTime - 3*minWait, waits, true}}},
		"served in between":       {queueFacts{}, []look{{0, waits, false}, {idleTime / 2, empty, false}, {idleTime, waits, false}, {idleTime / 2, waits, false}}},
		"not known, and it waits": {queueFacts{blind: errors.New("no permission")}, []look{{0, waits, false}, {idleTime, waits, false}, {idleTimeBlind, waits, true}}},
		"waits behind the active one": {queueFacts{arguments: map[string]string{argSingle: "true"}}, []look{{0, waits, false}, {time.Hour, waits, false},
			{time.Hour, waits, false}, {0, amqp.Queue{Messages: 9}, true}}},
	} {
		s, one, now := &Source{facts: c.facts}, &session{}, time.Now()
		for i, l := range c.looks {
			now = now.Add(l.after)
			if got := s.forgotten(one, l.queue, now); got != l.want {
				t.Errorf("%s: look %d says %v", name, i+1, got)
			}
		}
	}
}
