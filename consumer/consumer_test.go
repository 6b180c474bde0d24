package consumer_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// effects deliberately has no unique constraint, so that a doubled effect shows.
const effects = "create table effect (key text not null, body text not null)"

// viaSQL runs all tests of HandleTx through HandleSQL.
var viaSQL = flag.Bool("sql", false, "run the tests of HandleTx through HandleSQL")

// A bed is a consumer on a real database and a source with a short invisibility.
type bed struct {
	*testing.T
	source   *pawltest.Source
	pool     *pgxpool.Pool
	asks     *pgxpool.Pool // at READ COMMITTED, so that queries of the test lose no race
	counters *pawl.Counters
	config   consumer.Config
	form     form // of the handler
}

// A form is a handler of undecoded deliveries. The first function that is set decides the form.
type form struct {
	consumer.TxPolicy
	batchSize int

	work    workFunc
	trigger func(context.Context, pawl.Delivery) error
	many    func(context.Context, pgx.Tx, []pawl.Delivery) error
	manySQL func(context.Context, *sql.Tx, []pawl.Delivery) error
	sql     func(context.Context, *sql.Tx, pawl.Delivery) error
	handle  handleFunc
}

type (
	workFunc   func(context.Context, *consumer.Attempt[[]byte]) error
	handleFunc func(context.Context, pgx.Tx, pawl.Delivery) error
)

func (f form) handler() consumer.Handler {
	switch {
	case f.work != nil:
		return consumer.Handle(f.work).With(f.Policy)
	case f.trigger != nil:
		return consumer.Trigger(func(ctx context.Context, m consumer.Message[[]byte]) error { return f.trigger(ctx, m.Delivery) }).
			With(consumer.TriggerPolicy{Timeout: f.Timeout})
	case f.many != nil:
		return consumer.HandleManyTx(func(ctx context.Context, tx pgx.Tx, ms []consumer.Message[[]byte]) error {
			ds := make([]pawl.Delivery, len(ms))
			for i, m := range ms {
				ds[i] = m.Delivery
			}
			return f.many(ctx, tx, ds)
		}).With(consumer.ManyTxPolicy{Policy: f.Policy, BatchSize: f.batchSize})
	}
	if f.manySQL != nil {
		return consumer.HandleManySQL(func(ctx context.Context, tx *sql.Tx, ms []consumer.Message[[]byte]) error {
			ds := make([]pawl.Delivery, len(ms))
			for i, m := range ms {
				ds[i] = m.Delivery
			}
			return f.manySQL(ctx, tx, ds)
		}).With(consumer.ManyTxPolicy{Policy: f.Policy, BatchSize: f.batchSize})
	}
	if f.sql == nil && *viaSQL {
		f.sql = func(ctx context.Context, tx *sql.Tx, d pawl.Delivery) error { return f.handle(ctx, txn.Beneath(tx), d) }
	}
	if f.sql != nil {
		return consumer.HandleSQL(func(ctx context.Context, tx *sql.Tx, m consumer.Message[[]byte]) error {
			return f.sql(ctx, tx, m.Delivery)
		}).With(f.TxPolicy)
	}
	return f.handle.handler().With(f.TxPolicy)
}

func (f handleFunc) handler() consumer.TxHandler {
	return consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error { return f(ctx, tx, m.Delivery) })
}

func setup(t *testing.T, schema ...string) *bed {
	t.Helper()
	return setupOn(t, pawltest.URL(t, append([]string{effects}, schema...)...))
}

func setupOn(t *testing.T, url string) *bed {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	config = config.Copy()
	delete(config.ConnConfig.RuntimeParams, "default_transaction_isolation")
	asks, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(asks.Close)
	b := &bed{T: t, source: newSource(), pool: pool, asks: asks, counters: &pawl.Counters{}}
	b.config = consumer.Config{Name: "orders", Source: b.source, Hooks: pawl.Join(b.counters.Hooks(), logTo(t))}
	b.form.handle, b.form.Policy = apply, impatient
	return b
}

// impatient is a policy with short times.
var impatient = consumer.Policy{Lease: time.Minute, Backoff: job.Backoff{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond}}

// newSource returns a source that redelivers after a release, and otherwise too late for a test.
func newSource() *pawltest.Source { return &pawltest.Source{Invisibility: time.Minute} }

func logTo(t *testing.T) pawl.Hooks {
	return pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Kind == pawl.EventAckFailed && errors.Is(e.Err, pawltest.ErrNoCommit) {
			t.Errorf("acknowledged without a commit: %+v", e)
		}
		if e.Err != nil {
			t.Logf("%s %s %s: %v", e.Kind, e.Op, e.Key, e.Err)
		}
	}}
}

func apply(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
	_, err := tx.Exec(ctx, "insert into effect values ($1, $2)", d.Key, string(d.Payload))
	return err
}

func (b *bed) newConsumer() (*consumer.Consumer, error) {
	config := b.config
	if config.Handler == nil {
		config.Handler = b.form.handler()
	}
	return consumer.New(b.pool, config)
}

// start runs the consumer. The returned function stops it and waits for its drain.
func (b *bed) start() (stop func()) {
	b.Helper()
	f, err := b.newConsumer()
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("run: %v", err)
		}
		done <- nil
	}
	b.Cleanup(stop)
	return stop
}

func (b *bed) count(query string) (n int) {
	b.Helper()
	if err := b.asks.QueryRow(b.Context(), query).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

func (b *bed) until(what string, reached func() bool) {
	b.Helper()
	patience.Until(b, what, reached)
}

// consume runs until every message is acknowledged and every job is finished or a dead letter.
func (b *bed) consume() {
	b.Helper()
	stop := b.start()
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	b.until("all retries ended", func() bool {
		return b.count("select count(*) from pawl.job where status not in ('dead_letter')") == 0
	})
	stop()
}

func (b *bed) wantEffects(want int) {
	b.Helper()
	if got := b.count("select count(*) from effect"); got != want {
		b.Errorf("%d effects, want %d", got, want)
	}
	if doubled := b.count("select count(*) from (select from effect group by key having count(*) > 1) as d"); doubled != 0 {
		b.Errorf("%d keys took effect twice", doubled)
	}
}

func order(n int) pawl.Delivery {
	return pawl.Delivery{Key: fmt.Sprintf("order-%d", n), Payload: fmt.Appendf(nil, "body %d", n)}
}

func TestConsumer_DuplicatesTakeEffectOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n := range 200 {
		b.source.Send(order(n), order(n), order(n))
	}
	b.consume()
	b.wantEffects(200)
	if succeeded, dup := b.counters.Count(pawl.EventSucceeded), b.counters.Count(pawl.EventDuplicateSkipped); succeeded != 200 || dup != 400 {
		t.Errorf("counted %d succeeded and %d duplicates", succeeded, dup)
	}
	for name, want := range map[string]int{"succeeded": 200, "duplicate_skipped": 400} {
		if got := b.count("select sum(r.value) from pawl.rollup as r where r.span = 'hour' and r.source = 'consumer' and r.name = '" + name + "'"); got != want {
			t.Errorf("%d %s stand in the database, want %d", got, name, want)
		}
	}
}

// Two consumers race for the same messages, as two processes would.
func TestConsumer_TwoConsumersOneEffect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rival := *b
	rival.source = newSource()
	rival.config.Source = rival.source
	for n := range 100 {
		b.source.Send(order(n))
		rival.source.Send(order(n))
	}
	b.start()
	rival.start()
	b.until("both drained", func() bool { return b.source.Open() == 0 && rival.source.Open() == 0 })
	b.wantEffects(100)
}

// A failed handler leaves nothing behind. The delivery is acknowledged and retried from the
// database, with its first error in the history.
func TestConsumer_FailureIsStoredAndRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var tries atomic.Int32
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if err := apply(ctx, tx, d); err != nil {
			return err
		}
		if tries.Add(1) < 3 {
			return errors.New("not now")
		}
		if d.Attributes["tenant"] != "acme" || d.Key != "order-1" {
			return fmt.Errorf("the stored delivery changed: %+v", d)
		}
		return nil
	}
	d := order(1)
	d.Attributes = map[string]string{"tenant": "acme"}
	b.source.Send(d, d) // the first of the two is stored
	b.consume()
	b.wantEffects(1)
	if n := tries.Load(); n != 3 {
		t.Errorf("%d tries, want 3", n)
	}
	if n := b.count("select count(*) from pawl.inbox where processed_at is null"); n != 0 {
		t.Errorf("%d inbox rows are not settled", n)
	}
}

// The claim survives the handler's failure, so no other transaction can win between the rollback
// and the storing (docs/decisions/0004-storing.md).
func TestConsumer_NothingWinsBetweenFailureAndStoring(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if calls.Add(1) == 1 {
			close(entered)
			<-goOn
			return pawl.Final(errors.New("refused"))
		}
		return apply(ctx, tx, d)
	}
	rival := *b
	rival.source = newSource()
	rival.config.Source = rival.source
	b.source.Send(order(1))
	b.start()
	<-entered
	rival.source.Send(order(1))
	rival.start()
	b.until("the rival was told in progress", func() bool { return b.counters.Count(pawl.EventConflict) >= 2 })
	close(goOn)
	b.until("both drained", func() bool { return b.source.Open() == 0 && rival.source.Open() == 0 })
	b.wantEffects(0)
	if calls.Load() != 1 {
		t.Errorf("the handler ran %d times after a final error", calls.Load())
	}
}

// A delivery that cannot be handled is kept whole as one dead letter, however often it comes.
func TestConsumer_BadDeliveriesBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent  []pawl.Delivery
		event pawl.EventKind
		words string
		alive int // effects that happen nevertheless
	}{
		"no key":       {[]pawl.Delivery{{Payload: []byte("body 1")}}, pawl.EventInvalid, "carries no idempotency key", 0},
		"reserved key": {[]pawl.Delivery{{Key: "pawl/x", Payload: []byte("body 1")}}, pawl.EventInvalid, "reserved", 0},
		"long key":     {[]pawl.Delivery{{Key: strings.Repeat("k", 256), Payload: []byte("body 1")}}, pawl.EventInvalid, "256 octets", 0},
		"big body":     {[]pawl.Delivery{{Key: "k", Payload: []byte(strings.Repeat("x", 101))}}, pawl.EventInvalid, "the limit is 100", 0},
		"reused key":   {[]pawl.Delivery{{Key: "k", Payload: []byte("body 1")}, {Key: "k", Payload: []byte("body 2")}, {Key: "k", Payload: []byte("body 2")}}, pawl.EventMismatch, "stored_hash", 1},
		"final error":  {[]pawl.Delivery{{Key: "final", Payload: []byte("body 1")}}, pawl.EventFailed, "no such customer", 0},
		"panic":        {[]pawl.Delivery{{Key: "panic", Payload: []byte("body 1")}}, pawl.EventFailed, "panic: index out of range, at github.com/pawl-go/pawl/consumer_test", 0},
		"bad data":     {[]pawl.Delivery{{Key: "bad data", Payload: []byte("body 1")}}, pawl.EventFailed, "22P02", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.form.MaxPayload, b.form.MaxAttempts, b.config.Concurrency = 100, 2, 1
			b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
				switch d.Key {
				case "final":
					return pawl.Final(errors.New("no such customer"))
				case "panic":
					panic("index out of range")
				case "bad data":
					_, err := tx.Exec(ctx, "select 'x'::int")
					return err
				}
				return apply(ctx, tx, d)
			}
			b.source.Send(c.sent...)
			b.consume()
			b.wantEffects(c.alive)
			if b.counters.Count(c.event) == 0 {
				t.Errorf("no event %s", c.event)
			}
			last := c.sent[len(c.sent)-1]
			var body, why string
			var letters, attempts int
			err := b.pool.QueryRow(t.Context(), `select count(*) over (), d.attempts, d.payload_text, d.last_error || coalesce(d.last_errors -> -1 ->> 'code', '')
  from pawl_v1.dead_letters as d`).Scan(&letters, &attempts, &body, &why)
			if err != nil || letters != 1 || body != string(last.Payload) || !strings.Contains(why, c.words) {
				t.Errorf("%d dead letters, payload %q, reason %q, %v; want one with %q", letters, body, why, err, c.words)
			}
			if want := map[string]int{"final error": 1, "bad data": 1, "panic": 2}[name]; attempts != want {
				t.Errorf("%d attempts, want %d", attempts, want)
			}
		})
	}
}

// A delivery under a known key with another payload is shown with that key. It runs only if an
// operator retries it, in addition to the first.
func TestConsumer_MismatchRunsOnlyIfRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Concurrency = 1
	b.source.Send(pawl.Delivery{Key: "k", Payload: []byte("body 1")}, pawl.Delivery{Key: "k", Payload: []byte("body 2")})
	b.consume()
	b.wantEffects(1)
	const told = "select count(*) from pawl_v1.explain('k') as e where e.kind = 'job' and e.event = 'dead_letter'"
	if n := b.count(told); n != 1 {
		t.Errorf("the key shows %d dead letters, want 1", n)
	}
	if n := b.count("select count(*) from pawl_v1.dead_letters as d, pawl_v1.job_retry(d.id, 'ann', 'both are wanted') as r where r.outcome = 'retried'"); n != 1 {
		t.Errorf("%d retried", n)
	}
	if n := b.count("select count(*) from pawl_v1.explain('k') as e where e.kind = 'job' and e.event = 'pending'"); n != 1 {
		t.Errorf("the key shows %d jobs to be retried, want 1", n)
	}
	b.consume()
	if n := b.count("select count(*) from effect where key = 'k'"); n != 2 {
		t.Errorf("%d effects, want one of the first and one of the retry", n)
	}
}

// A handler that ends the transaction it was lent cannot commit half an effect as a whole one.
func TestConsumer_HandlerMayNotEndTheTransaction(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context, pgx.Tx) error{
		"commit":                    func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"rollback":                  func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		"commit as text":            func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "commit"); return err },
		"rollback as text, ignored": func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "rollback"); return nil },
		"raw commit":                func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Conn().Exec(ctx, "commit"); return err },
		"raw commit, error": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, "commit")
			return errors.Join(err, errors.New("boom"))
		},
		"raw rollback": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Conn().Exec(ctx, "rollback"); return err },
		"swallowed":    func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "select 1/0"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.form.MaxAttempts = 2
			b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
				if err := apply(ctx, tx, d); err != nil {
					return err
				}
				return end(ctx, tx)
			}
			b.source.Send(order(1))
			b.consume()
			letters := b.count("select count(*) from pawl_v1.dead_letters")
			effects := b.count("select count(*) from effect")
			// A raw COMMIT makes effect and inbox row durable together, which is one effect. Every
			// other case ends as a dead letter with the reason, without an effect.
			durable := strings.HasPrefix(name, "raw commit")
			if durable && (effects != 1 || letters != 0) || !durable && (effects != 0 || letters != 1) {
				t.Errorf("%d effects, %d dead letters", effects, letters)
			}
		})
	}
}

// A constraint that fails at COMMIT fails the delivery like any other error.
func TestConsumer_DeferredConstraintIsStored(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table strict (n int unique deferrable initially deferred); insert into strict values (1)")
	b.form.MaxAttempts = 2
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		_, err := tx.Exec(ctx, "insert into strict values (1)")
		return err
	}
	b.source.Send(order(1))
	b.consume()
	if n := b.count("select count(*) from pawl_v1.dead_letters where last_errors -> 0 ->> 'code' = '23505'"); n != 1 {
		t.Errorf("%d dead letters with 23505", n)
	}
}

// A handler that overruns its limit is cancelled. Its delivery is charged and stored.
func TestConsumer_OverrunIsStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.form.Timeout, b.form.MaxAttempts = 50*time.Millisecond, 2
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if err := apply(ctx, tx, d); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "select pg_sleep(60)")
		return err
	}
	b.source.Send(order(1))
	b.consume()
	b.wantEffects(0)
	if n := b.count("select count(*) from pawl_v1.dead_letters where attempts = 2"); n != 1 {
		t.Errorf("%d dead letters after 2 attempts", n)
	}
}

// Serialization failures and deadlocks run the whole transaction again and are not charged.
func TestConsumer_LostRacesRestart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var calls atomic.Int32
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if calls.Add(1) <= 3 {
			_, err := tx.Exec(ctx, "do $$ begin raise exception 'lost' using errcode = '40001'; end $$")
			return err
		}
		return apply(ctx, tx, d)
	}
	b.source.Send(order(1))
	b.consume()
	b.wantEffects(1)
	if n := b.counters.Count(pawl.EventRetryable); n != 0 {
		t.Errorf("%d attempts were charged", n)
	}
}

// The reply to COMMIT is lost, committed or not, on every path (inline, storing, retry). Each order
// takes effect once and every message is acknowledged.
func TestConsumer_LostCommitReplies(t *testing.T) {
	t.Parallel()
	for form, onSQL := range map[string]bool{"HandleTx": *viaSQL, "HandleSQL": true} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			lostCommitReplies(t, onSQL)
		})
	}
}

func lostCommitReplies(t *testing.T, onSQL bool) {
	url := pawltest.URL(t, effects)
	proxy, through := wireproxy.Start(t, url)
	b := setupOn(t, through)
	random := rand.New(rand.NewPCG(1, 2)) // guarded by the proxy's lock
	fails := func(d pawl.Delivery) bool { return d.Receives == 1 && strings.HasSuffix(d.Key, "7") }
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if fails(d) {
			return errors.New("not the first time")
		}
		return apply(ctx, tx, d)
	}
	if onSQL {
		b.form.sql = func(ctx context.Context, tx *sql.Tx, d pawl.Delivery) error {
			if fails(d) {
				return errors.New("not the first time")
			}
			return applySQL(ctx, tx, d)
		}
	}
	proxy.OnCommit(func() wireproxy.Cut {
		switch random.IntN(4) {
		case 0:
			return wireproxy.BeforeSend
		case 1:
			return wireproxy.BeforeReply
		}
		return wireproxy.Pass
	})
	for n := range 150 {
		b.source.Send(order(n), order(n))
	}
	stop := b.start()
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	proxy.OnCommit(nil)
	b.until("all retries ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	stop()
	b.wantEffects(150)
	if proxy.Cuts() < 50 {
		t.Errorf("only %d COMMITs were cut", proxy.Cuts())
	}
}

// A message is not acknowledged before the database answers, however many COMMITs go unanswered.
func TestConsumer_UnknownIsNeverAcknowledged(t *testing.T) {
	t.Parallel()
	proxy, through := wireproxy.Start(t, pawltest.URL(t, effects))
	b := setupOn(t, through)
	proxy.OnCommit(func() wireproxy.Cut { return wireproxy.BeforeSend })
	b.source.Send(order(1))
	stop := b.start()
	b.until("asked more often than in one go", func() bool { return proxy.Cuts() > 8 || b.source.Open() == 0 })
	if b.source.Open() == 0 {
		t.Fatal("acknowledged although no COMMIT ever reached the server")
	}
	proxy.OnCommit(nil)
	b.until("acknowledged in the end", func() bool { return b.source.Open() == 0 })
	b.until("retried, if it is stored", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	stop()
	b.wantEffects(1)
}

// In an outage of the database no delivery is stored or dead-lettered, and work resumes afterwards.
func TestConsumer_DatabaseOutageIsNotCharged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var killed sync.Map // by key
	b.form.MaxAttempts = 1
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if _, twice := killed.LoadOrStore(d.Key, true); !twice {
			_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return err
		}
		return apply(ctx, tx, d)
	}
	b.source.Send(order(1), order(2))
	b.consume()
	b.wantEffects(2)
	if n := b.count("select count(*) from pawl_v1.dead_letters"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// In an outage receiving stops, because the broker would count each receive against good messages.
func TestT43_OutageStopsTheReceiving(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n := range 100 {
		b.source.Send(order(n))
	}
	admin, err := pgx.Connect(t.Context(), pgtest.ServerURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	database := b.pool.Config().ConnConfig.Database
	var once sync.Once
	away := make(chan error, 1)
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		once.Do(func() { away <- pgtest.Shut(context.WithoutCancel(ctx), admin, database) })
		return apply(ctx, tx, d)
	}
	b.start()
	if err := patience.Receive(t, "the database is away", away); err != nil {
		t.Fatal(err)
	}
	b.until("it is noticed", func() bool { return b.counters.Count(pawl.EventError) > 3 })
	before := b.source.Receives()
	var more int
	patience.Watch(2*time.Second, func() { more = b.source.Receives() - before })
	if more > 2*10 { // at most the messages already under way
		t.Errorf("%d messages were received for nothing", more)
	}
	if err := pgtest.Reopen(t.Context(), admin, database); err != nil {
		t.Fatal(err)
	}
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	b.until("all retries ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	b.wantEffects(100)
}

// A delivery that keeps coming back without leaving a row may be killing its process. It is stored
// first and runs alone (docs/decisions/0038-suspects.md).
func TestT42_SuspectsAreStoredAndRunAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	suspect := order(1)
	suspect.Receives = 2 // as if two processes had died with it
	b.died(0)
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		// over another connection, since this transaction has already finished the job
		var crashes int
		err := b.pool.QueryRow(ctx, "select crashes from pawl.job where headers ->> 'pawl-key' = $1", d.Key).Scan(&crashes)
		if err != nil || crashes != 1 {
			return fmt.Errorf("not run as a suspect: crashes %d, %w", crashes, err)
		}
		return apply(ctx, tx, d)
	}
	b.source.Send(suspect)
	b.consume()
	b.wantEffects(1)
	if n := b.counters.Count(pawl.EventSuspect); n != 1 {
		t.Errorf("%d suspects were reported, want 1", n)
	}
}

// On a stop the consumer finishes and acknowledges running deliveries, and releases the rest.
func TestConsumer_StopDrains(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Concurrency = 2
	entered, goOn := make(chan struct{}, 2), make(chan struct{})
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		entered <- struct{}{}
		<-goOn
		return apply(ctx, tx, d)
	}
	for n := range 8 {
		b.source.Send(order(n))
	}
	stop := b.start()
	<-entered
	<-entered
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	b.until("what was not started is visible again", func() bool {
		return b.source.Waiting() == 6
	})
	close(goOn)
	<-stopped
	b.wantEffects(2)
	if open := b.source.Open(); open != 6 {
		t.Errorf("%d messages open, want 6", open)
	}
}

// A fingerprint function that panics makes a dead letter and does not kill the process.
func TestConsumer_FingerprintPanicIsInvalid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Fingerprint = func(d pawl.Delivery) (pawl.Fingerprint, error) {
		return pawl.FingerprintOf(d.Payload[:7]), nil // panics if the body is shorter
	}
	b.source.Send(order(10), pawl.Delivery{Key: "short", Payload: []byte("x")})
	b.consume()
	b.wantEffects(1)
	if n := b.count("select count(*) from pawl_v1.dead_letters where last_error like '%panic%'"); n != 1 {
		t.Errorf("%d dead letters that name the panic", n)
	}
}

// A handler that exits its goroutine, as testing.T.FailNow does, fails like any other.
func TestConsumer_ExitIsAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Concurrency, b.form.MaxAttempts = 1, 2
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if d.Key == "order-1" {
			runtime.Goexit()
		}
		return apply(ctx, tx, d)
	}
	b.source.Send(order(1), order(2), order(3))
	b.consume()
	b.wantEffects(2)
}

func TestNew_RefusesBadConfiguration(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, change := range map[string]func(*bed){
		"no name":        func(b *bed) { b.config.Name = "" },
		"long name":      func(b *bed) { b.config.Name = strings.Repeat("c", 201) },
		"odd name":       func(b *bed) { b.config.Name = "orders\n" },
		"no source":      func(b *bed) { b.config.Source = nil },
		"pool too small": func(b *bed) { b.config.Concurrency = 30 },
		"payload":        func(b *bed) { b.form.MaxPayload = 5 << 20 },
		"attempts":       func(b *bed) { b.form.MaxAttempts = 1001 },
		"lease":          func(b *bed) { b.form.Lease = time.Millisecond },
		"mode":           func(b *bed) { b.form.Mode = 7 },
		"batch":          func(b *bed) { b.batches(nothing); b.form.batchSize = 1001 },
	} {
		bad := *b
		change(&bad)
		if _, err := bad.newConsumer(); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, none := range map[string]consumer.Handler{"nil": nil, "zero": consumer.TxHandler{}, "no function": consumer.HandleTx[int](nil),
		"no batch function": consumer.HandleManyTx[int](nil), "no leased function": consumer.Handle[int](nil), "no trigger": consumer.Trigger[int](nil)} {
		config := b.config
		config.Handler = none
		if _, err := consumer.New(b.pool, config); !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(fmt.Sprint(err), "HandleTx") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRun_RefusesAMissingSchema(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.pool.Exec(t.Context(), "drop schema pawl cascade"); err != nil {
		t.Fatal(err)
	}
	f, err := b.newConsumer()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Run(t.Context()); !errors.Is(err, pawl.ErrSchemaMismatch) {
		t.Errorf("got %v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := f.Run(stopped); err != nil {
		t.Errorf("stopped before it began: %v", err)
	}
}
