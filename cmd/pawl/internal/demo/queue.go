package demo

import (
	"context"
	"errors"

	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// The queue that orders come by and, with --pipeline, the one that their events go to.
const queueName, shipmentQueue = "orders", "shipments"

// A queue is the SQS in this process, with its faults.
type queue struct{ *broker.Broker }

// weather is how badly the queue behaves: as SQS may on a bad day.
var weather = sqstest.Rates{Duplicate: 0.03, LoseDelete: 0.02, LoseReceive: 0.002, Error: 0.002, EntryError: 0.002,
	Reorder: true, AbandonedPolls: true}

func openQueue(ctx context.Context, seed uint64, rates sqstest.Rates) (*queue, error) {
	b, err := broker.Open(ctx, sqstest.Chaos(seed, rates), queueName, shipmentQueue)
	return &queue{b}, err
}

func (q *queue) stats() sqstest.Stats { return q.Server.Stats(queueName) }

// open counts the messages that are anywhere in the queues.
func (q *queue) open() (n int) {
	for _, s := range []sqstest.Stats{q.stats(), q.Server.Stats(shipmentQueue)} {
		n += s.Ready + s.Delayed + s.InFlight
	}
	return n
}

// moved grows with every message that is deleted.
func (q *queue) moved() int64 { return q.stats().Deleted + q.Server.Stats(shipmentQueue).Deleted }

// produce sends every order once or several times, in random order, each time as a message of its own, the way a producer
// does that retries after a timeout. Half are sent once and matter most: nothing repairs their loss. It sends in
// portions, one after each kill has begun, so that every armed worker meets work.
func (g *game) produce(ctx context.Context) error {
	send := func(ctx context.Context, messages []pawlsqs.Message) error { return g.sender.sendAll(ctx, messages) }
	if !g.Payments {
		sender, err := pawlsqs.OpenSender(ctx, broker.Client(g.queue.Endpoint), queueName, "")
		if err != nil {
			return err
		}
		send = func(ctx context.Context, messages []pawlsqs.Message) error { return sendAll(ctx, sender, messages) }
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

// resends bounds how often messages not known to be sent are sent again.
const resends = 10

// sendAll sends, and sends again what is not known to be sent, as a producer must: an order given up here would be lost
// before Pawl could see it. What was sent after all becomes one more duplicate.
func sendAll(ctx context.Context, sender *pawlsqs.Sender, messages []pawlsqs.Message) error {
	for again := 0; ; again++ {
		err := sender.Send(ctx, messages...)
		var failed *pawlsqs.SendError
		if err == nil || again == resends || ctx.Err() != nil || !errors.As(err, &failed) {
			return err
		}
		unsent := make([]pawlsqs.Message, len(failed.Unsent))
		for i, n := range failed.Unsent {
			unsent[i] = messages[n]
		}
		messages = unsent
	}
}

func (g *game) messages() []pawlsqs.Message {
	messages := make([]pawlsqs.Message, 0, len(g.sent)*g.Duplicates)
	for _, o := range g.sent {
		body := bodyOf(o)
		for range g.copies() {
			messages = append(messages, pawlsqs.Message{Key: o.Key, Payload: body})
		}
	}
	g.random.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	return messages
}

// share is where the n-th of all portions begins, rounded up: the first is never empty, because nothing is killed
// before something was sent.
func share(messages, n, portions int) int { return (messages*n + portions - 1) / portions }

// copies draws how often one order is sent: once for half of them, Duplicates times on average.
func (g *game) copies() int {
	if g.random.IntN(2) == 0 {
		return 1
	}
	return 1 + g.random.IntN(4*g.Duplicates-3)
}
