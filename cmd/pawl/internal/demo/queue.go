package demo

import (
	"context"

	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
)

// The queue of the orders and, with --pipeline, the queue of their events.
const queueName, shipmentQueue = "orders", "shipments"

// produce sends every order once or several times, in random order, each time as its own message,
// like a producer that retries after a timeout. Half are sent once and matter most, because no copy
// repairs their loss. It sends one portion after each kill has started, so that every armed worker
// has work.
func (g *game) produce(ctx context.Context) error {
	send := func(ctx context.Context, ms []broker.Message) error { return g.broker.Send(ctx, queueName, ms...) }
	if g.Payments {
		send = g.sender.sendAll
	}
	messages := g.messages()
	portions := g.Kills + 1
	for n := range portions {
		if err := g.killer.begunAll(ctx, n); err != nil {
			return err
		}
		from, to := share(len(messages), n, portions), share(len(messages), n+1, portions)
		if err := send(ctx, messages[from:to]); err != nil {
			return err
		}
	}
	return nil
}

func (g *game) messages() []broker.Message {
	messages := make([]broker.Message, 0, len(g.sent)*g.Duplicates)
	for _, o := range g.sent {
		body := bodyOf(o)
		for range g.copies() {
			messages = append(messages, broker.Message{Key: o.Key, Payload: body})
		}
	}
	g.random.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	return messages
}

// share is the index at which the n-th of all portions starts, rounded up. The first portion is
// never empty, because no kill comes before a message.
func share(messages, n, portions int) int { return (messages*n + portions - 1) / portions }

// copies returns how often one order is sent: once for half of them, Duplicates times on average.
func (g *game) copies() int {
	if g.random.IntN(2) == 0 {
		return 1
	}
	return 1 + g.random.IntN(4*g.Duplicates-3)
}

// A stand is the progress of a run outside of the business tables.
type stand struct {
	broker.Count
	waiting int  // stored deliveries, if Open is 0, and with payments unanswered webhooks
	known   bool // broker and database have both answered
}

// stand asks the broker and, if its queues are empty, the database.
func (g *game) stand(ctx context.Context) (s stand) {
	var err error
	if s.Count, err = g.broker.Count(ctx); err == nil && s.Open == 0 {
		s.waiting, err = g.database.waiting(ctx)
	}
	s.known = err == nil
	if g.Payments {
		s.waiting += int(g.sender.open.Load())
	}
	g.last.Store(&s)
	return s
}

// settled reports whether all messages sent so far are done. Before the first message it is false.
func (g *game) settled(s stand) bool {
	sent := s.Sent
	if g.Payments {
		sent = g.sender.sent.Load()
	}
	return s.known && sent > 0 && s.open() == 0
}

// empty reports whether workers have nothing but stored deliveries to handle. With payments those
// count too, because a webhook is answered long before it is handled.
func (g *game) empty(s stand) bool {
	if g.Payments {
		return g.settled(s)
	}
	return s.known && s.Sent > 0 && s.Open == 0
}

// open counts unfinished work: messages in the queues, unanswered webhooks, stored deliveries.
func (s stand) open() int {
	if !s.known {
		return 1
	}
	return s.Open + s.waiting
}

// moved grows with every finished delivery.
func (g *game) moved(s stand) int64 {
	if g.Payments {
		return g.sender.accepted.Load() + s.Done
	}
	return s.Done
}

func (g *game) deliveries() int64 {
	if g.Payments {
		return g.sender.sent.Load()
	}
	if last := g.last.Load(); last != nil && last.Received >= 0 {
		return last.Received
	}
	return g.crew.events.count("received")
}
