package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/pawltest"
)

func numbered(account string, seq int) pawl.Delivery {
	return pawl.Delivery{Key: fmt.Sprintf("%s-%d", account, seq), Attributes: map[string]string{"account": account}, Payload: fmt.Appendf(nil, "%d", seq)}
}

// gate gives the consumer a gate per account. Its handler writes the account and the number.
func (b *bed) gate(mode consumer.GateMode) *consumer.SequenceGate {
	first := int64(0)
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		_, err := tx.Exec(ctx, "insert into ran (lane, seq) values ($1, $2::int)", d.Attributes["account"], string(d.Payload))
		return err
	}
	b.form.SequenceGate = &consumer.SequenceGate{Mode: mode, First: &first, HoldTimeout: time.Hour, Of: func(d pawl.Delivery) (account string, seq int64, err error) {
		_, err = fmt.Sscan(string(d.Payload), &seq)
		return d.Attributes["account"], seq, err
	}}
	return b.form.SequenceGate
}

// At a strict gate every delivery takes effect once, in the order of the numbers.
func TestGate_StrictClosesItsGaps(t *testing.T) {
	t.Parallel()
	const accounts, each = 6, 20
	proxy, through := wireproxy.Start(t, pawltest.URL(t, ran))
	b := setupOn(t, through)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) // guarded by the proxy's lock
	proxy.OnCommit(func() wireproxy.Cut {
		switch random.IntN(12) {
		case 0:
			return wireproxy.BeforeSend
		case 1:
			return wireproxy.BeforeReply
		}
		return wireproxy.Pass
	})
	b.gate(consumer.GateStrict)
	write := b.form.handle
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if err := write(ctx, tx, d); err != nil {
			return err
		}
		if rand.IntN(5) == 0 {
			return errors.New("not now")
		}
		return nil
	}
	var all []pawl.Delivery
	for account := range accounts {
		for seq := range each {
			d := numbered(fmt.Sprintf("account %d", account), seq)
			all = append(all, d, d)
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	b.source.Send(all...)
	stop := b.start()
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	proxy.OnCommit(nil)
	b.until("nothing is held", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	stop()
	b.wantOrder(accounts, each)
	if n := b.counters.Count(pawl.EventHeld); n == 0 {
		t.Error("nothing was held: the test shows nothing")
	}
	if n := b.count("select count(*) from pawl.sequence_gate_held"); n != 0 {
		t.Errorf("%d are still noted as held", n)
	}
}

// A late delivery at a latest gate is dropped, and its inbox row stays.
func TestGate_LatestDropsWhatComesLate(t *testing.T) {
	t.Parallel()
	b := setup(t, ran)
	b.gate(consumer.GateLatest)
	b.config.Concurrency = 1
	for _, seq := range []int{3, 5, 4, 5, 9, 0} {
		b.source.Send(numbered("a", seq))
	}
	b.source.Send(pawl.Delivery{Key: "no gate", Payload: []byte("1")})
	b.consume()
	if n := b.count("select sum(seq) from ran where lane = 'a'"); n != 3+5+9 {
		t.Errorf("the sum of what ran is %d", n)
	}
	if n := b.count("select count(*) from ran where lane = ''"); n != 1 {
		t.Errorf("%d passed without a gate", n)
	}
	if n := b.count("select count(*) from pawl.inbox where processed_at is not null and job_id is null"); n != 6 {
		t.Errorf("%d were seen, want 6", n)
	}
	if n := b.counters.Count(pawl.EventSuperseded); n != 2 {
		t.Errorf("%d were superseded, want 2", n)
	}
}

// A gap is reported and stays until an operator gives it up. A missing delivery is then dropped.
func TestGate_GapIsReportedAndReleased(t *testing.T) {
	t.Parallel()
	b := setup(t, ran)
	gate := b.gate(consumer.GateStrict)
	gate.HoldTimeout, gate.First = 100*time.Millisecond, nil
	b.source.Send(numbered("a", 7), numbered("a", 8), numbered("a", 10))
	b.start()
	b.until("held, for want of a beginning", func() bool { return b.counters.Count(pawl.EventHeld) == 3 })
	b.until("the gap is reported", func() bool { return b.counters.Count(pawl.EventGap) > 0 })
	b.count("select 1 from pawl_v1.sequence_gate_reset('orders', 'a', 6, 'ann', 'the sender begins at 7')")
	b.until("both that follow each other ran", func() bool { return b.count("select count(*) from ran") == 2 })
	if n := b.count("select (detail ->> 'last')::int from pawl_v1.sequence_gate_release('orders', 'a', 'ann', '9 was never sent')"); n != 9 {
		t.Errorf("released up to %d", n)
	}
	b.until("the last one ran", func() bool { return b.count("select count(*) from ran") == 3 })
	b.source.Send(numbered("a", 9))
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	if n := b.count("select count(*) from ran"); n != 3 {
		t.Errorf("%d ran", n)
	}
	if n := b.count("select count(*) from pawl.audit where target = 'gate orders a'"); n != 2 {
		t.Errorf("%d records", n)
	}
}

// A gate holds at most HoldLimit deliveries. The rest are dead letters until they are retried.
func TestGate_HoldLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, ran)
	b.gate(consumer.GateStrict).HoldLimit = 3
	for seq := range 9 {
		b.source.Send(numbered("a", 9-seq))
	}
	b.start()
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	if n := b.count("select count(*) from pawl.sequence_gate_held"); n != 3 {
		t.Errorf("%d are held", n)
	}
	if n := b.counters.Count(pawl.EventGap); n != 6 {
		t.Errorf("%d gaps reported", n)
	}
	b.source.Send(numbered("a", 0))
	b.until("the first ran", func() bool { return b.count("select count(*) from ran") > 0 })
	b.count("select count(*) from (select d.id from pawl_v1.dead_letters as d) as d, pawl_v1.job_retry(d.id, 'ann', 'the gap is closed')")
	b.until("all ran", func() bool { return b.count("select count(*) from ran") == 10 })
	b.wantOrder(1, 10)
}

// Suspects pass the gate as jobs, and wait there like other deliveries.
func TestGate_SuspectsWaitToo(t *testing.T) {
	t.Parallel()
	b := setup(t, ran)
	b.gate(consumer.GateStrict)
	b.form.SoloAfter, b.form.Lease = 1, time.Minute
	for seq := range 9 {
		d := numbered("a", 9-seq)
		d.OrderingKey = "in the wrong order"
		b.source.Send(d)
	}
	b.start()
	b.until("all but the first wait", func() bool { return b.count("select count(*) from pawl.sequence_gate_held") == 9 })
	b.source.Send(numbered("a", 0))
	b.until("all ran", func() bool { return b.count("select count(*) from ran") == 10 })
	b.until("nothing is left", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	b.wantOrder(1, 10)
	if n := b.count("select count(*) from pawl.inbox where processed_at is null"); n != 0 {
		t.Errorf("%d are not settled", n)
	}
}

// A delivery without a required number becomes a dead letter, and an invalid gate is refused.
func TestGate_Invalid(t *testing.T) {
	t.Parallel()
	b := setup(t, ran)
	b.gate(consumer.GateStrict)
	b.source.Send(pawl.Delivery{Key: "x", Payload: []byte("no number")})
	b.consume()
	if n := b.counters.Count(pawl.EventInvalid); n != 1 {
		t.Errorf("%d invalid", n)
	}
	for name, change := range map[string]func(*form){
		"Of": func(c *form) { c.SequenceGate = &consumer.SequenceGate{Mode: consumer.GateLatest} }, "Mode": func(c *form) { c.SequenceGate.Mode = "newest" },
		"StoreFirst": func(c *form) { c.Mode = consumer.StoreFirst }, "HoldLimit": func(c *form) { c.SequenceGate.HoldLimit = -1 },
	} {
		bad, gate := *b, *b.form.SequenceGate
		bad.form.SequenceGate = &gate
		change(&bad.form)
		if _, err := bad.newConsumer(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Deliveries are kept as the configuration says, without attributes that it does not name.
func TestKeep(t *testing.T) {
	t.Parallel()
	for keep, want := range map[consumer.KeepMode]string{consumer.KeepFailed: "order-2 order-4", consumer.KeepAll: "order-1 order-2 order-3 order-4", consumer.KeepOff: ""} {
		for _, form := range []string{"inline", "batch"} {
			t.Run(fmt.Sprint(form, keep), func(t *testing.T) {
				t.Parallel()
				b := setup(t, `insert into pawl.delivery (consumer, key, payload, received_at) values ('orders', 'old', '', now() - interval '15 days')`)
				refuse := func(d pawl.Delivery) error {
					switch d.Key {
					case "order-2":
						return errors.New("cannot be done")
					case "order-4":
						return pawl.Final(errors.New("never"))
					}
					return nil
				}
				b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
					return errors.Join(apply(ctx, tx, d), refuse(d))
				}
				if form == "batch" {
					b.batches(refuse)
				}
				b.config.Keep, b.form.MaxAttempts = consumer.Keep{Mode: keep, Retention: b.config.Keep.Retention, Attributes: []string{"trace"}}, 2
				for n := range 4 {
					d := order(n + 1)
					d.Attributes = map[string]string{"trace": "t\x00", "secret": "s"}
					d.VerifiedBy = "key 7"
					b.source.Send(d, d)
				}
				stop := b.start()
				b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
				b.until("all retries ended", func() bool { return b.count("select count(*) from pawl.job where status <> 'dead_letter'") == 0 })
				if keep != consumer.KeepOff {
					b.until("the old one is deleted", func() bool { return b.count("select count(*) from pawl.delivery where key = 'old'") == 0 })
				}
				stop()
				var got string
				err := b.pool.QueryRow(t.Context(), `select coalesce(string_agg(d.key, ' ' order by d.key), '') from pawl.delivery as d
 where d.key <> 'old' and d.headers = '{"trace": "t\uFFFD"}' and d.verified_by = 'key 7' and convert_from(d.payload, 'UTF8') like 'body %'`).Scan(&got)
				if err != nil || got != want {
					t.Errorf("kept %q, %v; want %q", got, err, want)
				}
			})
		}
	}
}

// A stored delivery's job is finished before the handler runs, which saves a message. Behind a gate
// the job's row stays until the handler has returned.
func TestGate_AloneKeepsTheRow(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int32{"no gate": 0, "a gate": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, ran)
			if want > 0 {
				b.gate(consumer.GateStrict)
			}
			var calls, rows atomic.Int32
			b.form.handle = func(ctx context.Context, tx pgx.Tx, _ pawl.Delivery) error {
				if calls.Add(1) == 1 {
					return errors.New("not now")
				}
				var n int32
				err := tx.QueryRow(ctx, "select count(*) from pawl.job").Scan(&n)
				rows.Store(n)
				return err
			}
			b.source.Send(numbered("a", 0))
			b.consume()
			b.until("it is done", func() bool { return b.count("select count(*) from pawl.inbox where processed_at is not null") == 1 })
			if calls.Load() < 2 || rows.Load() != want {
				t.Errorf("%d calls, the last finds %d rows, want %d", calls.Load(), rows.Load(), want)
			}
		})
	}
}
