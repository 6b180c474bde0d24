package pawlrabbitmq

import (
	"context"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// idleLooks is how often in a row messages may wait while this source has nothing, before its consumer counts as forgotten.
	idleLooks = 2
	// idleLooksSingle is that of a queue with a single active consumer: the others have nothing while that one is busy.
	idleLooksSingle = 12
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
	case !s.forgotten(one, q):
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

// forgotten reports whether a queue that says this cannot know our consumer, which has nothing.
func (s *Source) forgotten(one *session, q amqp.Queue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.gone || one.draining || len(one.arrivals) > 0 {
		return false
	}
	if q.Messages == 0 {
		one.idle = 0
		return q.Consumers == 0
	}
	one.idle++
	most := idleLooks
	if s.facts.blind != nil || s.facts.arguments[argSingle] == "true" {
		most = idleLooksSingle
	}
	return q.Consumers == 0 || one.idle >= most
}
