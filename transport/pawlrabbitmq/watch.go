package pawlrabbitmq

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// idleTime is how long checks may find messages waiting while this source has none, before its
	// consumer counts as forgotten. Config.Wait, the time between two checks, does not change it.
	idleTime = 5 * time.Second
	// idleTimeBlind is the same for a queue with unknown arguments. It may have a single active
	// consumer, and then the other consumers get nothing.
	idleTimeBlind = time.Minute
)

// consumes checks, after an empty wait, that RabbitMQ still knows this consumer. If a queue is
// deleted and recreated at once, RabbitMQ 3.10 does not notify its consumers, which would wait
// forever. AMQP has no request for one consumer, only for the numbers of consumers and of messages.
func (s *Source) consumes(ctx context.Context) error {
	s.mu.Lock()
	one := s.now
	idle := one != nil && len(one.arrivals) == 0
	s.mu.Unlock()
	if !idle {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	q, err := await(asking, func() (amqp.Queue, error) {
		one.frames.Lock() // one call of a channel at a time
		defer one.frames.Unlock()
		return one.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil)
	}, func(amqp.Queue) {})
	switch {
	case ctx.Err() != nil:
		return nil // stopping
	case err != nil:
		s.fail(one, err)
		return s.lossOf()
	case !s.forgotten(one, q, time.Now()):
		return nil
	}
	s.ended(one, errors.New("RabbitMQ no longer knows the consumer: the queue was recreated"))
	s.closing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		s.close(ctx, one)
	})
	return s.lossOf()
}

// forgotten reports whether RabbitMQ cannot know this idle consumer. Behind a single active
// consumer the others get nothing, so such a queue has forgotten it only if it has no consumers.
func (s *Source) forgotten(one *session, q amqp.Queue, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case one.gone, one.draining, len(one.arrivals) > 0:
		return false
	case q.Consumers == 0:
		return true
	case q.Messages == 0, s.facts.arguments[argSingle] == "true":
		one.idle = time.Time{}
		return false
	case one.idle.IsZero():
		one.idle = now
		return false
	case s.facts.blind != nil:
		return now.Sub(one.idle) >= idleTimeBlind
	}
	return now.Sub(one.idle) >= idleTime
}
