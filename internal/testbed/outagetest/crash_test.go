package outagetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// crash kills the backend of a transaction, like a statement that crashes it. The postmaster then
// ends all sessions and restarts the server.
func crash(ctx context.Context, tx pgx.Tx) error {
	var pid int
	if err := tx.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "select pg_sleep(60)")
	return err
}

// slowly writes its effect in a transaction that is long enough for other handlers to crash
// meanwhile.
func slowly(ctx context.Context, tx pgx.Tx, key string) error {
	if err := apply(ctx, tx, key); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "select pg_sleep(0.3)")
	return err
}

// received hides Exclusive of a stored delivery's job, so that only Exclusive of the consumer is
// seen.
func received(ctx context.Context, m consumer.Message[[]byte]) context.Context {
	if m.Handle == nil {
		ctx = new(verdict.Exclusive).Context(ctx)
	}
	return ctx
}

var fast = job.Backoff{Base: 20 * time.Millisecond, Max: 100 * time.Millisecond}

// A handler whose statement crashes the server each time is charged and ends as a dead letter.
// Other handlers, although they run beside it repeatedly, are not charged.
func TestCrash_IsCharged(t *testing.T) {
	t.Parallel()
	const attempts, good = 2, 5
	handle := func(crashes *atomic.Int32, exclusive *atomic.Bool) func(ctx context.Context, tx pgx.Tx, key string) error {
		return func(ctx context.Context, tx pgx.Tx, key string) error {
			if key == "culprit" {
				if verdict.HeldIn(ctx) {
					exclusive.Store(true)
				}
				crashes.Add(1)
				return crash(ctx, tx)
			}
			return slowly(ctx, tx, key)
		}
	}
	for name, form := range map[string]func(do func(context.Context, pgx.Tx, string) error) job.Handler{
		"transactional": func(do func(context.Context, pgx.Tx, string) error) job.Handler {
			return job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error { return do(ctx, tx, string(t.Payload)) })
		},
		"batch": func(do func(context.Context, pgx.Tx, string) error) job.Handler {
			return job.HandleManyTx("k", func(ctx context.Context, tx pgx.Tx, ts []job.Task[[]byte]) error {
				for _, t := range ts {
					if err := do(ctx, tx, string(t.Payload)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	} {
		t.Run("job, "+name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil, "")
			var crashes atomic.Int32
			var exclusive atomic.Bool
			b.exec(fmt.Sprintf(`select pawl_v1.job_enqueue('q', 'k', 'culprit', '{"max_attempts": %d}')`, attempts))
			for n := range good {
				b.exec(`select pawl_v1.job_enqueue('q', 'k', $1, '{"max_attempts": 1}')`, []byte(fmt.Sprint(n)))
			}
			var charged charges
			b.worker(b.pool(8, nil), charged.hooks(), job.Queue{Name: "q", Concurrency: 2}, form(handle(&crashes, &exclusive)))
			b.until("the culprit is a dead letter, and the others have ended", "select count(*) from pawl.job as j where j.status <> 'dead_letter'", 0)
			b.wantDead(1, attempts)
			b.wantEffects(good)
			charged.want(b, attempts)
			if n := crashes.Load(); n < 3 {
				t.Errorf("charged after %d crashes: an outage takes one attempt, or two", n)
			}
			if !exclusive.Load() {
				t.Errorf("it was charged without having been exclusive:\n%s", &charged)
			}
		})
	}
	// While a server restarts for 3 s, the consumer's own worker is silent. That counts as a death,
	// and a suspect is stored and not handled, so SoloAfter is more than the crashes.
	policy := consumer.Policy{MaxAttempts: attempts, Backoff: fast, SoloAfter: 1000}
	for name, form := range map[string]func(do func(context.Context, pgx.Tx, string) error) consumer.Handler{
		"transactional": func(do func(context.Context, pgx.Tx, string) error) consumer.Handler {
			return consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
				return do(received(ctx, m), tx, m.Key)
			}).
				With(consumer.TxPolicy{Policy: policy})
		},
		"batch": func(do func(context.Context, pgx.Tx, string) error) consumer.Handler {
			return consumer.HandleManyTx(func(ctx context.Context, tx pgx.Tx, ms []consumer.Message[[]byte]) error {
				for _, m := range ms {
					if err := do(received(ctx, m), tx, m.Key); err != nil {
						return err
					}
				}
				return nil
			}).With(consumer.ManyTxPolicy{Policy: policy, BatchSize: 4})
		},
	} {
		t.Run("consumer, "+name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil, "")
			var crashes atomic.Int32
			var exclusive atomic.Bool
			var charged charges
			s := &pawltest.Source{}
			s.Send(pawl.Delivery{Key: "culprit", Payload: []byte("x")})
			for n := range good {
				s.Send(pawl.Delivery{Key: fmt.Sprint(n), Payload: []byte("x")})
			}
			c, err := consumer.New(b.pool(12, nil), consumer.Config{Name: "c", Source: s, Hooks: charged.hooks(), Handler: form(handle(&crashes, &exclusive))})
			b.must(err)
			b.starts(c)
			patience.Until(t, "all is acknowledged", func() bool { return s.Open() == 0 })
			b.until("nothing is open", "select count(*) from pawl.job as j where j.status <> 'dead_letter'", 0)
			b.wantDead(1, attempts)
			b.wantEffects(good)
			charged.want(b, attempts)
			if n := crashes.Load(); n < 3 {
				t.Errorf("charged after %d crashes: an outage takes one attempt, or two", n)
			}
			if !exclusive.Load() {
				t.Errorf("it was charged without having been exclusive:\n%s", &charged)
			}
		})
	}
}

// A crash of another session ends a handler's session. If the handler notices only when the server
// is back, it is not charged: Pawl asks the server whether it kept running, and it did not.
func TestCrash_NoticedLate(t *testing.T) {
	t.Parallel()
	const crashes = 2
	b := setup(t, nil, "")
	entered, back := make(chan uint32, 1), make(chan struct{})
	var calls atomic.Int32
	var charged charges
	b.worker(b.pool(8, nil), charged.hooks(), job.Queue{Name: "q"}, job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, _ job.Task[[]byte]) error {
		if calls.Add(1) <= crashes {
			entered <- tx.Conn().PgConn().PID()
			<-back
		}
		return apply(ctx, tx, "late")
	}).With(job.Policy{Timeout: 10 * time.Minute}))
	b.exec(`select pawl_v1.job_enqueue('q', 'k', '', '{"max_attempts": 1}')`)
	for range crashes {
		pid := patience.Receive(t, "the handler is in its transaction", entered)
		b.must(syscall.Kill(int(b.admin.PgConn().PID()), syscall.SIGKILL))
		b.until("the server is back without the handler's session", fmt.Sprint("select count(*) from pg_stat_activity as a where a.pid = ", pid), 0)
		back <- struct{}{}
	}
	b.until("the job has ended", "select count(*) from pawl.job", 0)
	b.wantEffects(1)
	charged.want(b, 0)
}

// charges are the charged attempts.
type charges struct {
	mu  sync.Mutex
	all []string
}

func (c *charges) hooks() pawl.Hooks {
	return pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Kind == pawl.EventRetryable || e.Kind == pawl.EventFailed {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.all = append(c.all, fmt.Sprintf("%s of %q %d: %v", e.Op, e.Key, e.JobID, e.Err))
		}
	}}
}

// String lists the charged attempts.
func (c *charges) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.all, "\n")
}

// want waits until n attempts were charged, and checks that none was another handler's.
func (c *charges) want(b *bed, n int) {
	b.Helper()
	patience.Until(b, "the charges are told", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.all) >= n
	})
	c.mu.Lock()
	got := len(c.all)
	c.mu.Unlock()
	if got != n {
		b.Errorf("%d attempts were charged, want %d:\n%s", got, n, c)
	}
}

// wantDead checks the number of dead letters with this number of attempts and an error about a lost
// server. A server that was asked before it noticed the crash has answered.
func (b *bed) wantDead(n, attempts int) {
	b.Helper()
	if got := b.count(`select count(*) from pawl_v1.dead_letters as d where d.attempts = $1 and d.last_error ~ 'the server (went away|answers others)'`, attempts); got != n {
		b.Errorf("%d dead letters after %d attempts, want %d", got, attempts, n)
	}
}

func (b *bed) wantEffects(n int) {
	b.Helper()
	if got := b.count("select count(distinct e.key) from effect as e"); got != n {
		b.Errorf("effects of %d, want %d", got, n)
	}
	if doubled := b.count("select count(*) - count(distinct e.key) from effect as e"); doubled > 0 {
		b.Errorf("%d effects are doubled", doubled)
	}
}

// An outage during handlers charges no attempt, however long it lasts and although it happens
// twice.
func TestOutage_ChargesNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, "")
	const n = 4
	var outages atomic.Int32
	entered := make(chan int, 2*n)
	do := func(ctx context.Context, tx pgx.Tx, key string) error {
		if err := apply(ctx, tx, key); err != nil {
			return err
		}
		if outages.Load() >= 2 {
			return nil
		}
		var pid int
		if err := tx.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
			return err
		}
		entered <- pid
		_, err := tx.Exec(ctx, "select pg_sleep(600)")
		return err
	}
	s := &pawltest.Source{}
	pool := b.pool(16, nil)
	c, err := consumer.New(pool, consumer.Config{Name: "c", Source: s, Hooks: quiet, Concurrency: n, Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
		return do(ctx, tx, m.Key)
	}).With(consumer.TxPolicy{Policy: consumer.Policy{MaxAttempts: 1, Backoff: fast, Timeout: 10 * time.Minute}})})
	b.must(err)
	b.starts(c)
	b.worker(b.pool(8, nil), quiet, job.Queue{Name: "q", Concurrency: n}, job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error {
		return do(ctx, tx, string(t.Payload))
	}).With(job.Policy{Timeout: 10 * time.Minute}))
	for i := range n {
		s.Send(pawl.Delivery{Key: fmt.Sprint("message ", i), Payload: []byte("x")})
		b.exec(`select pawl_v1.job_enqueue('q', 'k', $1, '{"max_attempts": 1}')`, []byte(fmt.Sprint("job ", i)))
	}
	for outages.Load() < 2 {
		pid := patience.Receive(t, "a handler is in its transaction", entered)
		outages.Add(1)
		// The server stays away for a while, because its postmaster is stopped.
		b.must(syscall.Kill(b.server.PID(), syscall.SIGSTOP))
		b.must(syscall.Kill(pid, syscall.SIGKILL))
		patience.Watch(6*time.Second, func() {})
		b.must(syscall.Kill(b.server.PID(), syscall.SIGCONT))
		b.connect()
		for len(entered) > 0 {
			<-entered
		}
	}
	patience.Until(t, "all is acknowledged", func() bool { return s.Open() == 0 })
	b.until("all jobs have ended", "select count(*) from pawl.job", 0)
	b.wantEffects(2 * n)
}
