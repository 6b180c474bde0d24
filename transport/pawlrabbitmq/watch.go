package pawlrabbitmq

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// idleTime is how long messages may wait, at each look, while this source has nothing, before its
	// consumer counts as forgotten. It does not depend on Config.Wait, the time between two looks.
	idleTime = 5 * time.Second
	// idleTimeBlind is that of a queue whose arguments are not known: it may have a single active
	// consumer, and the others have nothing while that one is busy.
	idleTimeBlind = time.Minute
)

// consumes makes sure, after a wait in vain, that RabbitMQ still knows our consumer. If a queue is deleted and made anew at once, RabbitMQ 3.10 tells its
// consumers nothing, and they wait for ever. AMQP cannot ask for one consumer; it tells how many there are, and how many messages wait.
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
	s.ended(one, errors.New("RabbitMQ has forgotten the consumer: the queue was made anew"))
	s.closing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		s.close(ctx, one)
	})
	return s.lossOf()
}

// forgotten reports whether a queue that says this cannot know our consumer, which has nothing. A
// queue with a single active consumer has none if it knows none of them: as long as it has one,
// that one is served, and the others have nothing for as long as it lives.
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
