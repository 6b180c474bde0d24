package consumer_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/pawltest"
)

// A marks is a filter in memory. A test reads and changes what it holds.
type marks struct {
	mu    sync.Mutex
	held  map[string][]byte
	loads int
	// called in its methods, if set; the first may replace the answer
	load  func(keys []string, marks [][]byte) ([][]byte, error)
	store func() error
}

func (m *marks) Load(_ context.Context, keys []string) ([][]byte, error) {
	m.mu.Lock()
	m.loads++
	found := make([][]byte, len(keys))
	for n, key := range keys {
		found[n] = m.held[key]
	}
	load := m.load
	m.mu.Unlock()
	if load != nil {
		return load(keys, found)
	}
	return found, nil
}

func (m *marks) Store(_ context.Context, keys []string, marks [][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.store != nil {
		return m.store()
	}
	if m.held == nil {
		m.held = map[string][]byte{}
	}
	for n, key := range keys {
		m.held[key] = marks[n]
	}
	return nil
}

// filtering gives the consumer a filter in memory.
func (b *bed) filtering() *marks {
	m := &marks{}
	b.config.Filter = m
	return m
}

func sqlApply(ctx context.Context, tx *sql.Tx, d pawl.Delivery) error {
	_, err := tx.ExecContext(ctx, "insert into effect values ($1, $2)", d.Key, string(d.Payload))
	return err
}

// again sends the orders once more and waits until all are acknowledged.
func (b *bed) again(from, to int) {
	b.Helper()
	for n := from; n < to; n++ {
		b.source.Send(order(n))
	}
	b.consume()
}

func (b *bed) wantFiltered(want int) {
	b.Helper()
	if got := b.counters.Count(pawl.EventDuplicateFiltered); got != int64(want) {
		b.Errorf("%d duplicates were filtered, want %d: %v", got, want, b.counters)
	}
}

// In each form, a duplicate whose mark is found is acknowledged without a claim.
func TestFilter_DuplicatesNeedNoClaim(t *testing.T) {
	t.Parallel()
	for name, choose := range map[string]func(*bed){
		"HandleTx":     func(*bed) {},
		"HandleSQL":    func(b *bed) { b.form.sql = sqlApply },
		"HandleManyTx": func(b *bed) { b.batches(nothing) },
		"StoreFirst":   func(b *bed) { b.form.Mode = consumer.StoreFirst },
		"Handle": func(b *bed) {
			b.form.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
				return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, a.Delivery) })
			}
		},
		"suspects": func(b *bed) { b.form.SoloAfter = 1; b.died(0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			choose(b)
			b.filtering()
			b.again(0, 40)
			b.wantFiltered(0)
			b.again(0, 60) // 20 of them are new
			b.wantEffects(60)
			b.wantFiltered(40)
			if n := b.counters.Count(pawl.EventDuplicateSkipped); n != 0 {
				t.Errorf("the database found %d duplicates", n)
			}
			if n := b.count("select coalesce(sum(r.value), 0) from pawl.rollup as r where r.span = 'hour' and r.source = 'consumer' and r.name = 'duplicate_filtered'"); n != 40 {
				t.Errorf("%d stand in the database, want 40", n)
			}
		})
	}
}

// A filter that lost its marks gets them again from duplicates that the database finds.
func TestFilter_DuplicatesMarkAgain(t *testing.T) {
	t.Parallel()
	for name, choose := range map[string]func(*bed){"HandleTx": func(*bed) {}, "HandleManyTx": func(b *bed) { b.batches(nothing) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			choose(b)
			m := b.filtering()
			b.again(0, 20)
			clear(m.held)
			b.again(0, 20)
			b.wantFiltered(0)
			b.again(0, 20)
			b.wantFiltered(20)
			b.wantEffects(20)
		})
	}
}

// A mark proves nothing for another delivery, and not after its row may be gone.
func TestFilter_WrongMarksProveNothing(t *testing.T) {
	t.Parallel()
	const sent = 20
	for name, c := range map[string]struct {
		change  func(*bed, *marks)
		effects int // after all have come again; 0: sent
	}{
		"garbage":         {change: func(_ *bed, m *marks) { m.each(func(v []byte) []byte { return []byte("OK") }) }},
		"empty":           {change: func(_ *bed, m *marks) { m.each(func(v []byte) []byte { return []byte{} }) }},
		"short":           {change: func(_ *bed, m *marks) { m.each(func(v []byte) []byte { return v[:8] }) }},
		"long":            {change: func(_ *bed, m *marks) { m.each(func(v []byte) []byte { return append(slices.Clone(v), 0) }) }},
		"of another time": {change: func(_ *bed, m *marks) { m.each(func(v []byte) []byte { v = slices.Clone(v); v[0] = 0xff; return v }) }},
		"of another key": {change: func(_ *bed, m *marks) {
			keys := slices.Sorted(maps.Keys(m.held))
			first := m.held[keys[0]]
			for n, key := range keys {
				if m.held[key] = first; n+1 < len(keys) {
					m.held[key] = m.held[keys[n+1]]
				}
			}
		}},
		"of a forgotten delivery": {effects: sent + 1, change: func(b *bed, _ *marks) {
			b.exec("select pawl_v1.inbox_forget('orders', 'order-7', 'me', 'it was wrong')")
		}},
		"of purged rows": {effects: 2 * sent, change: func(b *bed, _ *marks) {
			// its promise ends
			b.exec("update pawl.consumer set seen_at = seen_at - interval '1 year'")
			b.exec("select pawl_v1.inbox_purge('orders', 1)")
		}},
		"of a table that was restored": {effects: 2 * sent, change: func(b *bed, _ *marks) { b.exec("truncate pawl.inbox") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m := b.filtering()
			b.again(0, sent)
			if len(m.held) != sent {
				t.Fatalf("%d marks, want %d", len(m.held), sent)
			}
			c.change(b, m)
			b.again(0, sent)
			b.wantFiltered(0)
			if n := b.count("select count(*) from effect"); n != max(c.effects, sent) {
				t.Errorf("%d effects, want %d", n, max(c.effects, sent))
			}
			b.again(0, sent) // their new marks are right
			b.wantFiltered(sent)
		})
	}
}

func (m *marks) each(change func([]byte) []byte) {
	for key, value := range m.held {
		m.held[key] = change(value)
	}
}

func (b *bed) exec(statement string) {
	b.Helper()
	if _, err := b.asks.Exec(b.Context(), statement); err != nil {
		b.Fatal(err)
	}
}

// An operator forgets a delivery while its duplicate is between the filter and the database. The
// mark proves nothing, because the epoch is read after it.
func TestFilter_TheEpochIsReadLast(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.filtering()
	b.again(0, 1)
	m.load = func(_ []string, marks [][]byte) ([][]byte, error) {
		b.exec("select pawl_v1.inbox_forget('orders', 'order-0', 'me', 'it was wrong')")
		return marks, nil
	}
	b.again(0, 1)
	b.wantFiltered(0)
	if n := b.count("select count(*) from effect"); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
}

// An operator forgets a delivery while a duplicate of it is being claimed. The duplicate's mark has
// the epoch from before the claim, so it cannot prove a row that the operator has deleted.
func TestFilter_AMarkHasTheEpochBeforeItsClaim(t *testing.T) {
	t.Parallel()
	// no statement is prepared ahead of its turn
	b := setupOn(t, pawltest.URL(t, effects)+"&default_query_exec_mode=exec")
	m := b.filtering()
	b.again(0, 1)
	clear(m.held)
	tx, err := b.asks.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	exec := func(statement string) {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("lock table pawl.forgotten in access exclusive mode")
	b.source.Send(order(0))
	stop := b.start()
	b.until("the epoch is being read", func() bool {
		return b.count("select count(*) from pg_locks where relation = 'pawl.forgotten'::regclass and not granted and mode = 'AccessShareLock'") > 0
	})
	exec("select pawl_v1.inbox_forget('orders', 'order-0', 'me', 'it was wrong')")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	stop()
	b.again(0, 1)
	if n := b.count("select count(*) from effect"); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
}

// A delivery whose transaction did not commit has no mark.
func TestFilter_NoMarkBeforeCommit(t *testing.T) {
	t.Parallel()
	for name, choose := range map[string]func(*bed){"HandleTx": func(*bed) {}, "HandleManyTx": func(b *bed) { b.batches(nothing) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m := b.filtering()
			choose(b)
			entered := make(chan struct{}, 10)
			wait := func(ctx context.Context) error {
				entered <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}
			b.form.handle = func(ctx context.Context, _ pgx.Tx, _ pawl.Delivery) error { return wait(ctx) }
			if b.form.many != nil {
				b.form.many = func(ctx context.Context, _ pgx.Tx, _ []pawl.Delivery) error { return wait(ctx) }
			}
			b.config.ShutdownTimeout = time.Millisecond
			b.source.Send(order(1))
			stop := b.start()
			<-entered
			stop()
			if len(m.held) != 0 || b.source.Open() != 1 || b.count("select count(*) from pawl.inbox") != 0 {
				t.Errorf("%d marks, %d deliveries are open, %d are in the inbox", len(m.held), b.source.Open(), b.count("select count(*) from pawl.inbox"))
			}
		})
	}
}

// Another payload under a known key goes to the database and becomes a dead letter.
func TestFilter_AnotherPayload(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.filtering()
	b.again(0, 1)
	d := order(0)
	d.Payload = []byte("another")
	b.source.Send(d, order(0))
	b.consume()
	if n := b.counters.Count(pawl.EventMismatch); n != 1 {
		t.Errorf("%d mismatches, want 1", n)
	}
	b.wantFiltered(1)
	b.wantEffects(1)
}

// Consumers with other names share a filter and each handle every message.
func TestFilter_ConsumersShareIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.filtering()
	b.again(0, 10)
	b.config.Name = "invoices"
	b.again(0, 10)
	b.wantFiltered(0)
	if n := b.count("select count(*) from effect"); n != 20 {
		t.Errorf("%d effects, want 20", n)
	}
}

// A filter that fails, panics or answers nonsense costs nothing but an event.
func TestFilter_FailuresAreMisses(t *testing.T) {
	t.Parallel()
	errDown := errors.New("down")
	for name, load := range map[string]func([]string, [][]byte) ([][]byte, error){
		"an error":      func(_ []string, marks [][]byte) ([][]byte, error) { return marks, errDown },
		"a panic":       func([]string, [][]byte) ([][]byte, error) { panic("boom") },
		"an exit":       func([]string, [][]byte) ([][]byte, error) { runtime.Goexit(); return nil, nil },
		"too few marks": func(_ []string, marks [][]byte) ([][]byte, error) { return marks[1:], nil },
		"too many":      func(_ []string, marks [][]byte) ([][]byte, error) { return append(marks, marks[0]), nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m := b.filtering()
			b.again(0, 10)
			m.load = load
			m.store = func() error { return errDown }
			b.again(0, 10)
			b.wantFiltered(0)
			b.wantEffects(10)
			if n := b.counters.Count(pawl.EventDuplicateSkipped); n != 10 {
				t.Errorf("the database found %d duplicates, want 10", n)
			}
			if n := b.counters.Count(pawl.EventError); n == 0 {
				t.Error("no event reports it")
			}
		})
	}
}

// A delivery with a semantic key has no mark, because its row may have another key.
func TestFilter_SemanticKeysHaveNoMark(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.filtering()
	d := order(1)
	d.SemanticKey = "paid"
	b.source.Send(d)
	b.consume()
	if len(m.held) != 0 {
		t.Errorf("%d marks", len(m.held))
	}
}

// Filtered duplicates keep the order of their lane, and a gate ignores them.
func TestFilter_LanesAndGates(t *testing.T) {
	t.Parallel()
	b := setup(t, ran)
	b.filtering()
	b.gate(consumer.GateStrict)
	const each = 10
	for range 3 {
		for seq := range each {
			for _, account := range []string{"a", "b"} {
				d := numbered(account, seq)
				d.OrderingKey = account
				b.source.Send(d)
			}
		}
		b.consume()
	}
	b.wantOrder(2, each)
	b.wantFiltered(2 * 2 * each)
}

// A source that has taken a delivery back is asked before the filter acknowledges it.
func TestFilter_DropsWhatItsSourceHasTakenBack(t *testing.T) {
	t.Parallel()
	for name, choose := range map[string]func(*bed){"HandleTx": func(*bed) {}, "HandleManyTx": func(b *bed) { b.batches(nothing) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.filtering()
			choose(b)
			m := b.member()
			b.again(0, 10)
			m.revoked = func(d pawl.Delivery) bool { return d.Receives == 1 }
			b.again(0, 10)
			if lost := b.counters.Count(pawl.EventHandleLost); lost != 10 {
				t.Errorf("%d were reported lost, want 10", lost)
			}
			b.wantFiltered(10) // when they came again
			b.wantEffects(10)
			for arrival, times := range m.noted().asked {
				if times != 1 {
					t.Errorf("asked %d times for %s", times, arrival)
				}
			}
		})
	}
}

// A batch has known keys, new keys, and keys twice.
func TestFilter_MixedBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.filtering()
	b.batches(nothing)
	b.config.Concurrency = 1
	b.again(0, 30)
	loads := m.loads
	for n := range 60 {
		b.source.Send(order(n), order(n))
	}
	b.consume()
	b.wantEffects(60)
	filtered, skipped := b.counters.Count(pawl.EventDuplicateFiltered), b.counters.Count(pawl.EventDuplicateSkipped)
	if filtered < 30 || filtered+skipped != 90 {
		t.Errorf("%d were filtered and %d skipped, want 90 together", filtered, skipped)
	}
	if m.loads-loads >= 90 {
		t.Errorf("%d calls of the filter for 120 deliveries in batches", m.loads-loads)
	}
}

// A Trigger has no inbox that a mark could stand for.
func TestFilter_NotWithATrigger(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.filtering()
	b.form.trigger = func(context.Context, pawl.Delivery) error { return nil }
	if _, err := b.newConsumer(); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("%v", err)
	}
}
