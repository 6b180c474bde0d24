package outagetest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// losses are ways in which a handler loses its connection each time.
var losses = map[string]struct {
	lose func(ctx context.Context, tx pgx.Tx) error
	why  string // pattern for the last error of the dead letter
	most int32  // calls in one process until an attempt is charged
}{
	"its session is ended": {func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
		return err
	}, "answers others", 2},
	"it is idle for too long": {func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local idle_in_transaction_session_timeout = '20ms'"); err != nil {
			return err
		}
		patience.Elapse(200 * time.Millisecond)
		_, err := tx.Exec(ctx, "select 1")
		return err
	}, "idle_in_transaction_session_timeout", 2},
	"it takes the server down": {crash, "the server (went away|answers others)", verdict.Bound},
}

// A handler that loses its connection each time ends as a dead letter with the reason, even if each
// attempt runs in another process. Uncharged losses are counted per process, so n processes have n
// times the bound.
func TestLosses_EachInAnotherProcess(t *testing.T) {
	t.Parallel()
	const processes, attempts = 2, 2
	for name, loss := range losses {
		// turns makes each attempt run in another process than the previous one.
		turns := func() (calls *atomic.Int32, mine func(process int32) bool, lose func(context.Context, pgx.Tx) error) {
			calls = &atomic.Int32{}
			return calls, func(process int32) bool { return calls.Load()%processes == process },
				func(ctx context.Context, tx pgx.Tx) error {
					calls.Add(1)
					return loss.lose(ctx, tx)
				}
		}
		wantEnd := func(b *bed, calls int32) {
			b.Helper()
			b.until("the dead letter says "+loss.why, `select count(*) from pawl_v1.dead_letters as d where d.attempts = 2 and d.last_error ~ '`+loss.why+`'`, 1)
			if most := processes*loss.most + attempts*loss.most; calls > most {
				b.Errorf("%d calls, want at most %d", calls, most)
			}
			b.wantEffects(0)
		}
		t.Run("job, "+name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil, "")
			calls, mine, lose := turns()
			for n := range int32(processes) {
				b.worker(b.pool(6, nil), quiet, job.Queue{Name: "q", Admit: func() int {
					if mine(n) {
						return 1
					}
					return 0
				}}, job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, _ job.Task[[]byte]) error { return lose(ctx, tx) }))
			}
			b.exec(`select pawl_v1.job_enqueue('q', 'k', '', jsonb_build_object('max_attempts', $1::int))`, attempts)
			b.until("the job is a dead letter", "select count(*) from pawl.job as j where j.status = 'dead_letter'", 1)
			wantEnd(b, calls.Load())
		})
		t.Run("consumer, "+name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil, "")
			calls, mine, lose := turns()
			s := &pawltest.Source{}
			for n := range int32(processes) {
				c, err := consumer.New(b.pool(6, nil), consumer.Config{Name: "c", Source: &inTurn{s, func() bool { return mine(n) }}, Hooks: quiet,
					Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, _ consumer.Message[[]byte]) error { return lose(ctx, tx) }).
						With(consumer.TxPolicy{Policy: consumer.Policy{MaxAttempts: attempts, Backoff: fast}})})
				b.must(err)
				b.starts(c)
			}
			s.Send(pawl.Delivery{Key: "k", Payload: []byte("x")})
			b.until("the delivery is a dead letter", "select count(*) from pawl.job as j where j.status = 'dead_letter'", 1)
			wantEnd(b, calls.Load())
		})
	}
}

// An inTurn is a source that delivers nothing while it is another process's turn.
type inTurn struct {
	*pawltest.Source
	mine func() bool
}

func (s *inTurn) Receive(ctx context.Context, limit int) ([]pawl.Delivery, error) {
	if !s.mine() {
		pace.Sleep(ctx, 5*time.Millisecond)
		return nil, nil
	}
	return s.Source.Receive(ctx, limit)
}
