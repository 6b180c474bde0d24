package counted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/pawl-go/pawl/internal/testbed/checker"
)

// An order is the body of a message, with its number in its lane. Its customer is its lane.
type order struct {
	Key    string `json:"key"`
	Lane   string `json:"lane"`
	Number int    `json:"number"`
	Cents  int64  `json:"cents"`
	Poison poison `json:"poison,omitempty"`
	Pad    string `json:"pad,omitempty"` // padding that makes the body long
}

// A poison is a defect of an order.
type poison string

const (
	killsProcess poison = "kills its process"
	refused      poison = "is refused for good"
	undecodable  poison = "is not JSON"
	keyless      poison = "has no key"
	oversized    poison = "is too long"
)

// broken begins the body of an undecodable order. The order's JSON follows.
const broken = "not JSON: "

func (o order) body() []byte {
	text, _ := json.Marshal(o) // cannot fail: strings and numbers only
	if o.Poison == undecodable {
		return append([]byte(broken), text...)
	}
	return text
}

// parse reads the body of a message or of a dead letter.
func parse(body []byte) (o order, err error) {
	err = json.Unmarshal(bytes.TrimPrefix(body, []byte(broken)), &o)
	return o, err
}

// checked converts the order for the checker.
func (o order) checked() checker.Order {
	return checker.Order{Key: o.Key, Customer: o.Lane, Cents: o.Cents}
}

// A book numbers orders and records what was sent.
type book struct {
	mu     sync.Mutex
	lanes  int
	orders []order
	sends  int
}

func keyOf(lane string, number int) string { return fmt.Sprintf("%s-%d", lane, number) }

// next creates n orders, distributed over the lanes in turn.
func (b *book) next(n int) []order {
	b.mu.Lock()
	defer b.mu.Unlock()
	made := make([]order, n)
	for i := range made {
		at := len(b.orders)
		lane, number := fmt.Sprintf("lane-%d", at%b.lanes), at/b.lanes
		made[i] = order{Key: keyOf(lane, number), Lane: lane, Number: number, Cents: int64(100 + at)}
		b.orders = append(b.orders, made[i])
	}
	return made
}

// add records an order that has its own lane.
func (b *book) add(o order) order {
	b.mu.Lock()
	defer b.mu.Unlock()
	o.Lane, o.Cents = o.Key, int64(100+len(b.orders))
	b.orders = append(b.orders, o)
	return o
}

// all returns the orders so far.
func (b *book) all() []order {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.orders[:len(b.orders):len(b.orders)]
}

// message returns one more copy of an order to send.
func (b *book) message(o order) Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sends++
	m := Message{ID: fmt.Sprintf("send-%d", b.sends), Key: o.Key, Lane: o.Lane, Body: o.body()}
	if o.Poison == keyless {
		m.Key = ""
	}
	return m
}

func (b *book) sent() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sends
}
