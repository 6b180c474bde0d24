//go:build proof

package pawlredis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/rpc"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
)

// A broker is an at-least-once queue that worker processes reach by RPC. It survives them.
type broker struct {
	address string

	mu       sync.Mutex
	messages []*message
	acked    int
	counts   map[pawl.EventKind]int
}

type message struct {
	key       string
	receives  int
	visibleAt time.Time
	acked     bool
}

// invisibility is short, so that the deliveries of a killed worker come again soon.
const invisibility = 3 * time.Second

func startBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{counts: map[pawl.EventKind]int{}}
	server := rpc.NewServer()
	if err := server.RegisterName("Broker", &remoteBroker{b}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			go server.ServeConn(conn)
		}
	}()
	b.address = l.Addr().String()
	return b
}

// send sends each key several times, in random order.
func (b *broker) send(random *rand.Rand, keys []string, copies int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := len(b.messages)
	for range copies {
		for _, key := range keys {
			b.messages = append(b.messages, &message{key: key})
		}
	}
	fresh := b.messages[from:]
	random.Shuffle(len(fresh), func(i, j int) { fresh[i], fresh[j] = fresh[j], fresh[i] })
}

func (b *broker) open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.messages) - b.acked
}

func (b *broker) count(kind pawl.EventKind) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts[kind]
}

// remoteBroker has the calls of the workers.
type remoteBroker struct{ b *broker }

type wireDelivery struct {
	ID       int
	Key      string
	Receives int
}

func (r *remoteBroker) Receive(most int, ds *[]wireDelivery) error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	now := time.Now()
	for id, m := range r.b.messages {
		if len(*ds) == most {
			return nil
		}
		if !m.acked && m.visibleAt.Before(now) {
			m.visibleAt = now.Add(invisibility)
			m.receives++
			*ds = append(*ds, wireDelivery{id, m.key, m.receives})
		}
	}
	return nil
}

func (r *remoteBroker) Ack(ids []int, _ *struct{}) error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	for _, id := range ids {
		if m := r.b.messages[id]; !m.acked {
			m.acked = true
			r.b.acked++
		}
	}
	return nil
}

func (r *remoteBroker) Release(ids []int, _ *struct{}) error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	for _, id := range ids {
		r.b.messages[id].visibleAt = time.Now().Add(100 * time.Millisecond)
	}
	return nil
}

func (r *remoteBroker) Count(kinds map[pawl.EventKind]int, _ *struct{}) error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	for kind, n := range kinds {
		r.b.counts[kind] += n
	}
	return nil
}

// A remoteSource is the source of a worker.
type remoteSource struct{ client *rpc.Client }

func (s remoteSource) Info() pawl.SourceInfo { return pawl.SourceInfo{ReceiveBatch: 50, AckBatch: 50} }

func (s remoteSource) Receive(ctx context.Context, most int) (ds []pawl.Delivery, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var wire []wireDelivery
	if err := s.client.Call("Broker.Receive", most, &wire); err != nil {
		return nil, err
	}
	for _, d := range wire {
		ds = append(ds, pawl.Delivery{Key: d.Key, MessageID: fmt.Sprint(d.ID), Payload: []byte(d.Key), Receives: d.Receives, Handle: d.ID})
	}
	if len(ds) == 0 {
		select { // a poll
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return ds, nil
}

func (s remoteSource) Ack(_ context.Context, rs ...pawl.Receipt) error {
	ids := make([]int, len(rs))
	for n, r := range rs {
		if !r.Valid() {
			return fmt.Errorf("a receipt without a commit: %v", r.Handle())
		}
		ids[n] = r.Handle().(int)
	}
	return s.client.Call("Broker.Ack", ids, &struct{}{})
}

func (s remoteSource) Release(_ context.Context, _ time.Duration, ds ...pawl.Delivery) error {
	ids := make([]int, len(ds))
	for n, d := range ds {
		ids[n] = d.Handle.(int)
	}
	return s.client.Call("Broker.Release", ids, &struct{}{})
}
