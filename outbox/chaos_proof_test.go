//go:build proof

package outbox_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/outbox"
)

// Flags for the size of TestOutbox_SurvivesChaos.
var (
	chaosTransactions = flag.Int("chaos-transactions", 1500, "transactions of TestOutbox_SurvivesChaos, of which a third roll back")
	chaosAggregates   = flag.Int("chaos-aggregates", 60, "aggregates they append to")
)

// flap takes the consumer down and up at random until done is closed.
func (c *consumer) flap(done <-chan struct{}, random *rand.Rand) {
	for {
		select {
		case <-done:
			c.down.Store(false)
			return
		case <-time.After(20*time.Millisecond + time.Duration(random.Int64N(int64(400*time.Millisecond)))):
			c.down.Store(!c.down.Load())
		}
	}
}

// A third of the writers' transactions roll back, relay processes are killed at random moments, and
// the sink flaps. An event is delivered if and only if its transaction committed. In each
// aggregate, first deliveries come in commit order. A second delivery has the same id and payload.
// Behind the inbox each event takes effect once.
func TestOutbox_SurvivesChaos(t *testing.T) {
	t.Parallel()
	b := setup(t, chaosTables)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &consumer{bed: b, payloads: map[string]string{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)

	done := make(chan struct{})
	var busy, writers sync.WaitGroup
	busy.Go(func() { c.flap(done, rand.New(rand.NewPCG(seed, 1))) })
	kills := 0
	busy.Go(func() { kills = b.killUntil(done, server.URL, rand.New(rand.NewPCG(seed, 2))) })
	const crowd = 4
	for w := range uint64(crowd) {
		writers.Go(func() { b.write(*chaosTransactions/crowd, rand.New(rand.NewPCG(seed, 3+w))) })
	}
	writers.Wait()
	want := b.count("select count(*) from truth")
	for deadline, last := time.Now().Add(30*time.Second), 0; ; time.Sleep(50 * time.Millisecond) {
		got := b.count("select count(*) from applied")
		if got >= want && b.count("select count(*) from pawl.job") == 0 {
			break
		}
		if got > last {
			last, deadline = got, time.Now().Add(30*time.Second)
		}
		if time.Now().After(deadline) {
			t.Errorf("%d of %d applied, and no more for 30 s; pending: %s", got, want, b.pending())
			break
		}
	}
	close(done)
	busy.Wait()
	server.Close()

	b.wantCount("select count(*) from (select event_id from applied group by event_id having count(*) > 1) as d", 0)
	b.wantCount("select count(*) from truth as t full join applied as a using (event_id) where t.event_id is null or a.event_id is null", 0)
	c.wantOrder()
	t.Logf("counted: outbox: %d events committed, %d deliveries, %d relays killed, 0 lost, 0 doubled behind the inbox", want, len(c.arrived), kills)
	// Duplicates are left to chance here; TestRelay_CrashRepeatsTheEvent forces them.
	if kills == 0 {
		t.Error("the run proves nothing: no relay was killed")
	}
}

// wantOrder requires that each aggregate's first deliveries came in commit order.
func (c *consumer) wantOrder() {
	c.Helper()
	order := map[string]int{}
	rows, err := c.pool.Query(c.Context(), "select event_id, n from truth")
	c.must(err)
	var id string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { order[id] = n; return nil })
	c.must(err)
	seen, last := map[string]bool{}, map[string]int{}
	for _, a := range c.arrived {
		n, committed := order[a.id]
		switch {
		case seen[a.id]:
			continue
		case !committed:
			c.Errorf("event %s was delivered, and its transaction did not commit", a.id)
		case n < last[a.aggregate]:
			c.Errorf("%s: event number %d came after number %d", a.aggregate, n, last[a.aggregate])
		}
		seen[a.id], last[a.aggregate] = true, n
	}
}

// write runs n transactions that append one to three events. A third roll back.
func (b *bed) write(n int, random *rand.Rand) {
	for i := range n {
		aggregates := random.Perm(*chaosAggregates)[:1+random.IntN(3)]
		events := make([]outbox.Event, len(aggregates))
		for k, a := range aggregates {
			events[k] = event(strconv.Itoa(a), fmt.Sprintf("%d %d %d", i, k, random.Uint64()))
		}
		lost := random.IntN(3) == 0
		pause := time.Duration(random.Int64N(int64(5 * time.Millisecond)))
		err := b.transaction(func(tx pgx.Tx) error {
			answers, err := outbox.Append(b.Context(), tx, events...)
			for k, a := range answers {
				if err == nil {
					_, err = tx.Exec(b.Context(), "insert into truth (event_id, aggregate) values ($1, $2)", a.EventID, events[k].AggregateID)
				}
			}
			time.Sleep(pause)
			if err == nil && lost {
				err = errLost
			}
			return err
		})
		if err != nil && !errors.Is(err, errLost) {
			b.Errorf("appending: %v", err)
			return
		}
		if i%5 == 0 {
			outbox.Kick(b.pool)
		}
	}
}

var errLost = errors.New("this transaction is to roll back")

func (b *bed) transaction(fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(b.Context(), b.pool, fn)
}

// killUntil runs three relay processes and kills one about every half second until done is closed.
func (b *bed) killUntil(done <-chan struct{}, sink string, random *rand.Rand) (kills int) {
	crew := []*exec.Cmd{b.process(sink, ""), b.process(sink, ""), b.process(sink, "")}
	defer func() {
		for _, p := range crew {
			_ = p.Process.Kill()
			_ = p.Wait()
		}
	}()
	for {
		select {
		case <-done:
			return kills
		case <-time.After(200*time.Millisecond + time.Duration(random.Int64N(int64(800*time.Millisecond)))):
		}
		i := random.IntN(len(crew))
		_ = crew[i].Process.Kill()
		_ = crew[i].Wait()
		kills++
		crew[i] = b.process(sink, "")
	}
}
