//go:build proof

package outbox_test

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-go/pawl/outbox"
)

// While relays with a batch sink are killed at random, no event overtakes another and none is lost.
func TestBatch_SurvivesKills(t *testing.T) {
	t.Parallel()
	b := setup(t, chaosTables)
	c := &consumer{bed: b, payloads: map[string]string{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	var want []string
	for range 2 {
		for _, a := range b.append(eventsOf("1", 100)...) {
			want = append(want, a.EventID)
		}
	}
	kills := 0
	for kills < 8 && b.count("select count(*) from pawl.job") > 0 {
		p := b.batchProcess(server.URL, fmt.Sprintf("outbox.publish.after=kill@%d", rand.IntN(3)))
		dead := make(chan error, 1)
		go func() { dead <- p.Wait() }()
		select {
		case <-dead:
		case <-time.After(500*time.Millisecond + time.Duration(rand.Int64N(int64(time.Second)))):
			_ = p.Process.Kill()
			<-dead
		}
		kills++
	}
	b.relay(func(cfg *outbox.Config) { cfg.Sink = oneByOne{outbox.Func(post(server.URL)), post(server.URL)} })
	b.untilDone()
	c.mu.Lock()
	defer c.mu.Unlock()
	reached := 0
	for _, a := range c.arrived {
		at := slices.Index(want, a.id)
		if at > reached {
			t.Fatalf("event %d came before event %d", at, reached)
		}
		if at == reached {
			reached++
		}
	}
	b.wantCount("select count(*) from applied", len(want))
	t.Logf("counted: outbox in batches: %d events, %d deliveries, %d relays killed, 0 lost, 0 doubled behind the inbox", len(want), len(c.arrived), kills)
}

func eventsOf(of string, n int) (events []outbox.Event) {
	for i := range n {
		events = append(events, event(of, strconv.Itoa(i)))
	}
	return events
}
