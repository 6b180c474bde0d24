package standbytest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/testbed/jobtest"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

const schema = `create table effect (door text not null);
create table orders (id bigint primary key, status text not null default 'pending', result text, claimed_at timestamptz,
  completed_at timestamptz, last_error text, attempt_count int not null default 0, created_at timestamptz not null default now());
insert into orders (id) values (1), (2), (3);
create table strict (n int unique deferrable initially deferred);
insert into strict values (1)`

// A door is an entry point that executes an intent once. Its calls return nil only with a positive
// answer.
type door struct {
	name string
	// first is the first call, on watched connections. Its COMMIT is cut off. If it is nil, it was
	// prepared before.
	first func(ctx context.Context) error
	again func(ctx context.Context) error // a repeated call, normally on connections without Watch
	row   string                          // condition: the intent is recorded
	mute  bool                            // first promises nothing by itself and is not repeated
}

type bed struct {
	*testing.T
	watched, plain *pgxpool.Pool
	patient        *pgxpool.Pool // plain SQL clients whose commits the operator does not cancel
	rollback       bool          // a mutant: SQL clients end read-only transactions with ROLLBACK
	failedOver     atomic.Bool   // the answering primary lacks what the doors have written
}

func newBed(t *testing.T, url string) *bed {
	return &bed{T: t, watched: poolOf(t, url, watch), plain: poolOf(t, url, nil), patient: poolOf(t, url, patient)}
}

// unlike returns and reports the error of a wrong answer. It does not report it after a failover
// that has undone what the door has written.
func (b *bed) unlike(format string, args ...any) error {
	b.Helper()
	err := fmt.Errorf(format, args...)
	if !b.failedOver.Load() {
		b.Error(err)
	}
	return err
}

// doors returns all doors.
func (b *bed) doors() []door {
	return slices.Concat([]door{b.once(), b.onceLooked(), b.onceSQL(), b.onceFinal(), b.leased(), b.http(), b.guard(), b.guardFails(),
		b.enqueue(), b.enqueueMany(), b.release(), b.psql(), b.impatient(), b.effect()}, b.appends(), b.processes(), b.consumers())
}

func insert(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, "insert into effect values ($1)", name)
	return err
}

func effectOf(name string) string {
	return fmt.Sprintf("exists (select from effect as e where e.door = '%s')", name)
}

func intent(name string) pawl.Intent {
	return pawl.Intent{Scope: "standby", Key: name, Fingerprint: pawl.FingerprintOf([]byte(name))}
}

func (b *bed) once() door {
	call := func(pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := command.Once(ctx, pool, intent("once"), command.Options{Wait: -1}, func(ctx context.Context, tx pgx.Tx) (string, error) {
				return "done", insert(ctx, tx, "once")
			})
			return err
		}
	}
	return door{"once", call(b.watched), call(b.plain), effectOf("once"), false}
}

// onceLooked is once in a scope most of whose calls are replays, so each call first looks for an
// answer outside of a transaction.
func (b *bed) onceLooked() door {
	call := func(pool *pgxpool.Pool, key string) func(context.Context) error {
		return func(ctx context.Context) error {
			i := pawl.Intent{Scope: "looked", Key: key, Fingerprint: pawl.FingerprintOf([]byte(key))}
			_, err := command.Once(ctx, pool, i, command.Options{Wait: -1}, func(ctx context.Context, tx pgx.Tx) (string, error) {
				return "done", insert(ctx, tx, key)
			})
			return err
		}
	}
	for range 17 {
		b.must(call(b.plain, "known")(b.Context()))
	}
	return door{"once looked", call(b.watched, "once looked"), call(b.plain, "once looked"), effectOf("once looked"), false}
}

// onceSQL is once through database/sql, whose connections are also created from configurations.
func (b *bed) onceSQL() door {
	call := func(watch bool) func(context.Context) error {
		config := b.plain.Config().ConnConfig
		if watch {
			pawl.Watch(config, pawl.Watching{})
		}
		db := stdlib.OpenDB(*config)
		b.Cleanup(func() { _ = db.Close() })
		return func(ctx context.Context) error {
			_, err := command.OnceSQL(ctx, db, intent("once sql"), command.Options{Wait: -1}, func(ctx context.Context, tx *sql.Tx) (string, error) {
				_, err := tx.ExecContext(ctx, "insert into effect values ('once sql')")
				return "done", err
			})
			return err
		}
	}
	return door{"once sql", call(true), call(false), effectOf("once sql"), false}
}

// onceFinal is once with a final failure, which is an answer. The first call gets a cancelled
// COMMIT, records the failure again, and finds it recorded.
func (b *bed) onceFinal() door {
	call := func(pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := command.Once(ctx, pool, intent("once final"), command.Options{Wait: -1}, func(context.Context, pgx.Tx) (string, error) {
				return "", pawl.Final(errors.New("no"))
			})
			if errors.Is(err, pawl.ErrFailedFinal) {
				return nil
			}
			return errors.Join(err, errUncounted)
		}
	}
	return door{name: "once final", first: call(b.watched), again: call(b.plain),
		row: "exists (select from pawl.command as c where c.key = 'once final' and c.status = 'failed_final')"}
}

func (b *bed) leased() door {
	call := func(pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := command.Leased(ctx, pool, intent("leased"), command.LeaseOptions{Wait: -1, Repeatable: true},
				func(ctx context.Context, a *command.Attempt[string]) error {
					return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) (string, error) { return "done", insert(ctx, tx, "leased") })
				})
			return err
		}
	}
	// Claimed before the cut, so that the end of the attempt waits.
	a, _, err := command.Begin[string](b.Context(), b.watched, intent("leased"), command.LeaseOptions{Lease: time.Hour, Repeatable: true})
	b.must(err)
	b.Cleanup(a.Close)
	first := func(ctx context.Context) error {
		return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) (string, error) { return "done", insert(ctx, tx, "leased") })
	}
	return door{"leased", first, call(b.plain), effectOf("leased"), false}
}

func (b *bed) http() door {
	tenant := func(*http.Request) (string, error) { return "acme", nil }
	call := func(pool *pgxpool.Pool) func(context.Context) error {
		server := httptest.NewServer(httpkey.Once(pool, tenant, httpkey.Options{Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
			w.WriteHeader(http.StatusCreated)
			return insert(r.Context(), tx, "http")
		}))
		b.Cleanup(server.Close)
		return func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("shoes"))
			if err != nil {
				return err
			}
			r.Header.Set("Idempotency-Key", `"key-1"`)
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusCreated {
				return fmt.Errorf("status %d", response.StatusCode)
			}
			return nil
		}
	}
	return door{"http", call(b.watched), call(b.plain), effectOf("http"), false}
}

func (b *bed) guard() door {
	call := func(pool *pgxpool.Pool, id int64) func(context.Context) error {
		rows, err := guard.New(pool, guard.Table{Name: "orders"})
		b.must(err)
		return func(ctx context.Context) error {
			err := rows.Once(ctx, id, func(ctx context.Context, tx pgx.Tx) (any, error) { return nil, insert(ctx, tx, "guard") })
			if errors.Is(err, pawl.ErrAlreadyHandled) {
				return nil
			}
			return err
		}
	}
	return door{"guard", call(b.watched, 1), call(b.plain, 1), effectOf("guard"), false}
}

// guardFails is a row whose COMMIT fails by a deferred constraint. A separate statement records its
// error.
func (b *bed) guardFails() door {
	call := func(pool *pgxpool.Pool) func(context.Context) error {
		rows, err := guard.New(pool, guard.Table{Name: "orders"})
		b.must(err)
		return func(ctx context.Context) error {
			err := rows.Once(ctx, int64(3), func(ctx context.Context, tx pgx.Tx) (any, error) {
				_, err := tx.Exec(ctx, "insert into strict values (1)")
				return nil, err
			})
			if errors.Is(err, pawl.ErrFailureRecorded) || errors.Is(err, pawl.ErrAlreadyHandled) {
				return nil
			}
			return errors.Join(err, errUncounted)
		}
	}
	return door{name: "guard fails", first: call(b.watched), again: call(b.plain), row: "exists (select from orders as o where o.id = 3 and o.status = 'error')"}
}

func (b *bed) enqueue() door {
	call := func(pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := job.Enqueue(ctx, pool, job.Request{Queue: "unserved", Kind: "x", Key: "enqueue"})
			return err
		}
	}
	return door{"enqueue", call(b.watched), call(b.plain), "exists (select from pawl.job as j where j.queue = 'unserved')", false}
}

func (b *bed) enqueueMany() door {
	call := func(pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := job.EnqueueMany(ctx, pool, []job.Request{{Queue: "unserved many", Kind: "x", Key: "1"}, {Queue: "unserved many", Kind: "x", Key: "2"}})
			return err
		}
	}
	return door{name: "enqueue many", first: call(b.watched), again: call(b.plain), row: "exists (select from pawl.job as j where j.queue = 'unserved many')"}
}

// claimed returns a job that was claimed before the cut.
func (b *bed) claimed(queue string) job.Job {
	_, err := job.Enqueue(b.Context(), b.watched, job.Request{Queue: queue, Kind: "x"})
	b.must(err)
	var worker int64
	b.must(b.watched.QueryRow(b.Context(), "select w.worker_id from pawl_v1.worker_register('w', '1 hour') as w").Scan(&worker))
	jobs, err := jobtest.Claim(b.Context(), b.watched, queue, worker, 1)
	b.must(err)
	return jobs[0]
}

// ending finishes a claimed job in the user's own transaction.
func (b *bed) ending(name string, j job.Job) func(context.Context) error {
	return func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, b.watched, func(tx pgx.Tx) error {
			if err := insert(ctx, tx, name); err != nil {
				return err
			}
			return j.Finish(ctx, tx)
		})
	}
}

// release asks for the outcome of a finished job.
func (b *bed) release() door {
	j := b.claimed("released")
	var undone atomic.Bool
	again := func(ctx context.Context) error {
		released, err := j.Release(ctx, b.plain)
		if released {
			undone.Store(true)
			return b.unlike("the job was released after it had been finished")
		}
		if undone.Load() {
			return errUncounted
		}
		return err
	}
	return door{"release", b.ending("release", j), again, effectOf("release"), true}
}

// processes asks a worker by message for ended jobs: one has left the table, one is a dead letter.
func (b *bed) processes() []door {
	gone, dead := b.claimed("processed"), b.claimed("processed")
	w, err := job.NewWorker(b.plain, job.Config{Queues: []job.Queue{{Name: "processed", Concurrency: 4}}, Presence: job.Presence{Off: true}, Hooks: logTo(b.T, "processed"),
		Handlers: []job.Handler{job.Handle("x", func(context.Context, job.Task[[]byte]) error { return nil })}})
	b.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	process := func(id int64, want job.Processed) func(context.Context) error {
		return func(ctx context.Context) error {
			got, err := w.Process(ctx, id)
			if err == nil && got != want {
				return b.unlike("job %d is %s, want %s", id, got, want)
			}
			return err
		}
	}
	buries := func(ctx context.Context) error {
		_, err := b.watched.Exec(ctx, "select pawl_v1.job_fail($1, $2, '{}', '{\"final\": true}')", dead.ID, dead.Fence)
		return err
	}
	return []door{
		{"process the finished", b.ending("process the finished", gone), process(gone.ID, job.Absent), effectOf("process the finished"), true},
		{"process a dead letter", buries, process(dead.ID, job.Ended), "exists (select from pawl.job as j where j.queue = 'processed' and j.status = 'dead_letter')", true},
	}
}

// errUncounted is the result of a call that promises nothing by itself.
var errUncounted = errors.New("not an answer of Pawl")

// append appends an event twice, in transactions of a client that follows docs/reference/sql.md.
func (b *bed) append(name string, events ...outbox.Event) door {
	call := func(pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback(context.Background())
			told, err := outbox.Append(ctx, tx, events...)
			if err != nil {
				return err
			}
			if b.rollback && told[0].Duplicate {
				return tx.Rollback(ctx)
			}
			return tx.Commit(ctx)
		}
	}
	return door{name, call(b.watched), call(b.patient), "exists (select from pawl.job as j where j.queue = 'outbox/" + events[0].SinkName + "')", true}
}

func (b *bed) appends() []door {
	made := func(sink, key string) outbox.Event {
		return outbox.Event{SinkName: sink, Type: "made", Scope: "standby", Key: key}
	}
	return []door{b.append("append", made("one", "1")), b.append("append many", made("many", "1"), made("many", "2"))}
}

// psql is a client that uses only SQL.
func (b *bed) psql() door {
	call := func(pool *pgxpool.Pool) func(context.Context) error {
		return func(ctx context.Context) error {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback(context.Background())
			var outcome string
			err = tx.QueryRow(ctx, "select c.outcome from pawl_v1.inbox_claim('psql', 'message', sha256('')) as c").Scan(&outcome)
			if err != nil {
				return err
			}
			if outcome == "processed" {
				if err := insert(ctx, tx, "psql"); err != nil {
					return err
				}
			} else if b.rollback {
				return tx.Rollback(ctx)
			}
			return tx.Commit(ctx)
		}
	}
	return door{"psql", call(b.watched), call(b.patient), effectOf("psql"), true}
}

// impatient is a client that gives up on its COMMIT, so that pgx sends a cancel request.
func (b *bed) impatient() door {
	call := func(pool *pgxpool.Pool, patience time.Duration) func(context.Context) error {
		return func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				var outcome string
				err := tx.QueryRow(ctx, "select c.outcome from pawl_v1.inbox_claim('impatient', 'message', sha256('')) as c").Scan(&outcome)
				if err != nil || outcome != "processed" {
					return err
				}
				if err := insert(ctx, tx, "impatient"); err != nil {
					return err
				}
				ended, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				return tx.Commit(ended)
			})
		}
	}
	return door{"impatient", call(b.patient, 200*time.Millisecond), call(b.patient, time.Hour), effectOf("impatient"), true}
}

type owner string

func (o owner) Owner() pawl.Owner                   { return contract.OwnerOf("job", "standby", string(o), 0) }
func (o owner) Hold(context.Context, pawl.Tx) error { return nil }

// effect is a step whose plan was replicated but whose end was not.
func (b *bed) effect() door {
	var calls int
	called, record := make(chan struct{}), make(chan struct{})
	pool, err := pgxpool.NewWithConfig(b.Context(), b.watched.Config())
	b.must(err)
	b.Cleanup(pool.Close)
	charge := step.Step{Name: "charge", Recovery: step.Keyed(time.Hour)}
	ended := make(chan error, 1)
	go func() {
		_, err := step.Run(b.Context(), pool, owner("step"), charge, func(context.Context, step.Call) (string, error) {
			close(called)
			<-record
			return "charged", nil
		})
		ended <- err
	}()
	<-called
	first := func(ctx context.Context) error {
		if calls++; calls > 1 {
			return errUncounted
		}
		close(record)
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			go pool.Close() // the call is recorded for a while after ctx ends
			return ctx.Err()
		}
	}
	again := func(ctx context.Context) error {
		_, err := step.Run(ctx, b.plain, owner("step"), charge, func(context.Context, step.Call) (string, error) {
			return "", errors.New("called again")
		})
		return err
	}
	return door{"step", first, again, "exists (select from pawl.step as e where e.status = 'succeeded')", false}
}

// consumer is a consumer. again is a redelivery to another process.
func (b *bed) consumer(name string, configure func(c *consumer.Config, pool *pgxpool.Pool), again *pgxpool.Pool) door {
	handle := consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, _ consumer.Message[[]byte]) error { return insert(ctx, tx, name) })
	call := func(pool *pgxpool.Pool, key string) func(context.Context) error {
		source := &pawltest.Source{Invisibility: 500 * time.Millisecond}
		c := consumer.Config{Name: name, Source: source, Handler: handle, Concurrency: 2, Hooks: logTo(b.T, name)}
		configure(&c, pool)
		f, err := consumer.New(pool, c)
		b.must(err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		b.Cleanup(cancel)
		sent := false
		return func(ctx context.Context) error {
			if !sent {
				source.Send(pawl.Delivery{Key: key, SemanticKey: semantic(name), Payload: []byte(name)})
				sent = true
			}
			err := patience.Poll(ctx, func() bool { return source.Open() == 0 })
			if err != nil {
				cancel()
				<-done
			}
			return err
		}
	}
	second := "k"
	if semantic(name) != "" {
		second = "k2" // known only by its semantic key
	}
	return door{name, call(b.watched, "k"), call(again, second), effectOf(name), false}
}

func semantic(name string) string {
	if name == "consumer semantic" {
		return "the same thing"
	}
	return ""
}

// marks is a filter in memory.
type marks struct {
	mu   sync.Mutex
	held map[string][]byte
}

func (m *marks) Load(_ context.Context, keys []string) ([][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make([][]byte, len(keys))
	for n, key := range keys {
		found[n] = m.held[key]
	}
	return found, nil
}

func (m *marks) Store(_ context.Context, keys []string, marks [][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, key := range keys {
		m.held[key] = marks[n]
	}
	return nil
}

func (b *bed) consumers() []door {
	inline := func(*consumer.Config, *pgxpool.Pool) {}
	batch := func(c *consumer.Config, _ *pgxpool.Pool) {
		c.Handler = consumer.HandleManyTx(func(ctx context.Context, tx pgx.Tx, _ []consumer.Message[[]byte]) error {
			return insert(ctx, tx, "consumer batch")
		})
	}
	fails := func(c *consumer.Config, _ *pgxpool.Pool) {
		c.Handler = consumer.HandleTx(func(context.Context, pgx.Tx, consumer.Message[[]byte]) error { return pawl.Final(errors.New("no")) })
	}
	trigger := func(c *consumer.Config, pool *pgxpool.Pool) {
		rows, err := guard.New(pool, guard.Table{Name: "orders"})
		b.must(err)
		c.Handler = consumer.Trigger(func(ctx context.Context, _ consumer.Message[[]byte]) error {
			return rows.Once(ctx, int64(2), func(ctx context.Context, tx pgx.Tx) (any, error) { return nil, insert(ctx, tx, "consumer trigger") })
		})
	}
	stored := b.consumer("consumer stored", fails, b.plain)
	stored.row = "exists (select from pawl.job as j where j.queue = 'inbox/consumer stored')"
	marks := &marks{held: map[string][]byte{}} // the mark of a duplicate that may not be replicated
	filtered := func(c *consumer.Config, _ *pgxpool.Pool) { c.Filter = marks }
	return []door{b.consumer("consumer inline", inline, b.plain), b.consumer("consumer filtered", filtered, b.plain), b.consumer("consumer batch", batch, b.plain), stored,
		b.consumer("consumer trigger", trigger, b.plain), b.consumer("consumer semantic", inline, b.watched)}
}
