//go:build proof

package pawlrabbitmq_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/internal/testbed/counted"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

// The queues are an unordered quorum queue, and one with a single active consumer.
func TestCounted(t *testing.T) {
	t.Run("quorum", func(t *testing.T) { counted.All(t, countedRabbit(false)) })
	t.Run("ordered", func(t *testing.T) { counted.All(t, countedRabbit(true)) })
}

// A classic queue marks a redelivery and does not count it. With SoloAfter 2, as in this run, a
// message that kills its process is suspected all the same, and becomes a dead letter.
func TestCounted_ClassicPoison(t *testing.T) {
	counted.Play(t, countedClassic(), counted.Poison)
}

func countedClassic() counted.Transport {
	tr := countedRabbit(false)
	tr.Name, tr.Options = "rabbitmq classic", map[string]string{"classic": "yes"}
	tr.Create = func(_ context.Context, q counted.Queue) error {
		return onCounted(q, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q.Name, true, false, false, false, nil)
			return err
		})
	}
	return tr
}

// The counted runs find a broken consumer and a broken source.
func TestCounted_FindsMutants(t *testing.T) {
	for _, c := range []struct {
		mutant  string
		run     counted.Run
		ordered bool
	}{
		{counted.AckFirst, counted.Kill, false},
		{counted.AckReleased, counted.Rolling, false},
		{counted.NoOrder, counted.Order, true},
	} {
		t.Run(c.mutant, func(t *testing.T) {
			t.Parallel()
			counted.MustFail(t, countedRabbit(c.ordered), c.run, c.mutant)
		})
	}
}

// session is how long RabbitMQ waits for a silent consumer: it closes a connection after two
// heartbeats, and checks once per heartbeat.
const session = 4 * time.Second

func openCounted(ctx context.Context, s counted.Spec) (pawl.Source, error) {
	cfg := pawlrabbitmq.Config{Wait: time.Second, AllowClassic: s.Options["classic"] != ""}
	if s.Options["ordered"] != "" && s.Worker > 1 {
		awaitFirst(s)
	}
	if s.Options["ordered"] != "" {
		cfg.OrderingKey = func(d *amqp.Delivery) string { // a sink sends the event's group
			return cmp.Or(pawlrabbitmq.ByHeader("lane")(d), pawlrabbitmq.ByHeader(pawlrabbitmq.GroupHeader)(d))
		}
	}
	return pawlrabbitmq.Open(ctx, dialer(s.Addr), s.Name, cfg)
}

// awaitFirst lets the first process become the active consumer, because its network goes silent
// later. After a crash there may be no process to wait for.
func awaitFirst(s counted.Spec) {
	q := counted.Queue{Broker: &rabbit{addr: s.Addr}, Name: s.Name}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		consumers := 0
		_ = onCounted(q, func(ch *amqp.Channel) error {
			state, err := ch.QueueDeclarePassive(q.Name, true, false, false, false, nil)
			consumers = state.Consumers
			return err
		})
		if consumers > 0 {
			return
		}
	}
}

func openCountedSink(ctx context.Context, s counted.Spec) (pawl.Sink, error) {
	return pawlrabbitmq.OpenSink(ctx, dialer(s.Addr), "", pawlrabbitmq.SinkConfig{RoutingKey: s.Name})
}

func countedRabbit(ordered bool) counted.Transport {
	args := quorum()
	tr := counted.Transport{
		Name: "rabbitmq", Session: session, Ordered: ordered, Points: []string{"rabbitmq.ack.before", "rabbitmq.ack.after"},
		Start: func(t testing.TB, need counted.Need) counted.Broker {
			if !need.Alone {
				return sharedServer(t)
			}
			return startServer(t)
		},
		Send: func(_ context.Context, q counted.Queue, ms []counted.Message) error {
			return onCounted(q, func(ch *amqp.Channel) error { return sendCounted(ch, q.Name, ms) })
		},
		Left: new(leftover).of,
	}
	if ordered {
		tr.Name, tr.Options = "rabbitmq ordered", map[string]string{"ordered": "yes"}
		args = single()
	}
	tr.Create = func(ctx context.Context, q counted.Queue) error {
		if err := onCounted(q, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q.Name, true, false, false, false, args)
			return err
		}); err != nil {
			return err
		}
		return brokers.AwaitQuorumQueue(ctx, q.Broker.(*rabbit).Server, q.Name)
	}
	tr.Forget = func(ctx context.Context, q counted.Queue) error {
		if err := onCounted(q, func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(q.Name, false, false, false)
			return err
		}); err != nil {
			return err
		}
		// As an operator would. Within milliseconds RabbitMQ 3.10 does not notify consumers.
		time.Sleep(time.Second)
		return tr.Create(ctx, q)
	}
	return tr
}

// A leftover counts the messages left in queues. AMQP counts those without a consumer, and the
// management API all, two seconds late. Nothing is left once both have said so for some time.
type leftover struct {
	mu    sync.Mutex
	empty map[string]time.Time // since when
}

const leftLag = 3 * time.Second

func (l *leftover) of(_ context.Context, q counted.Queue) (left int, err error) {
	err = onCounted(q, func(ch *amqp.Channel) error {
		state, err := ch.QueueDeclarePassive(q.Name, true, false, false, false, nil)
		left = state.Messages
		return err
	})
	if err != nil {
		return 0, err
	}
	all, err := managedMessages(q.Broker.(*rabbit), q.Name)
	if err != nil {
		return 0, err
	}
	left = max(left, all)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.empty == nil {
		l.empty = map[string]time.Time{}
	}
	if left > 0 {
		delete(l.empty, q.Name)
		return left, nil
	}
	since, there := l.empty[q.Name]
	if !there {
		since = time.Now()
		l.empty[q.Name] = since
	}
	if time.Since(since) < leftLag {
		return 1, nil
	}
	return 0, nil
}

// managedMessages returns the management API's count of messages, ready or with consumers.
func managedMessages(r *rabbit, queue string) (int, error) {
	response, err := http.Get(r.management + "/api/queues/%2F/" + queue)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var q struct{ Messages *int }
	if err := json.NewDecoder(response.Body).Decode(&q); err != nil || q.Messages == nil {
		return 1, err // it does not know the queue yet
	}
	return *q.Messages, nil
}

// onCounted runs a call on its own connection.
func onCounted(q counted.Queue, call func(*amqp.Channel) error) error {
	conn, err := amqp.DialConfig(urlOf(q.Broker.Addr()), amqp.Config{Heartbeat: heartbeat})
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseDeadline(time.Now().Add(5 * time.Second)) }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return call(ch)
}

func sendCounted(ch *amqp.Channel, queue string, ms []counted.Message) error {
	if err := ch.Confirm(false); err != nil {
		return err
	}
	var confirms []*amqp.DeferredConfirmation
	for _, m := range ms {
		p := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: m.Body, Headers: amqp.Table{"lane": m.Lane}}
		if m.Key != "" {
			p.Headers[pawlrabbitmq.DefaultKeyHeader] = m.Key
		}
		confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, p)
		if err != nil {
			return err
		}
		confirms = append(confirms, confirm)
	}
	for _, confirm := range confirms {
		if !confirm.Wait() {
			return fmt.Errorf("one of %d messages was not confirmed", len(ms))
		}
	}
	return nil
}
