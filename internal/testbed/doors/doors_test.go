// Package doors attacks every door: an entry point that lends a handler a transaction.
package doors_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
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
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// schema has no unique constraint, so a doubled effect shows.
const schema = `create table effect (key text not null, part text not null);
create table orders (id text primary key, status text not null default 'pending', result text, claimed_at timestamptz,
  completed_at timestamptz, last_error text, attempt_count int not null default 0, created_at timestamptz not null default now());
select pawl_v1.queue_set('archived', '{"archive": true}', 'ann', 'a reason')`

// A work is the action of a handler in its transaction, independent of the transaction's type.
type work func(ctx context.Context, exec func(query string) error) error

// byCommit and byRollback stand for calls of the transaction's methods. A query with the prefix
// byConn goes through the transaction's connection, if there is one. With byRows or byBatch it goes
// through the connection of rows.
const byCommit, byRollback, byConn, byRows, byBatch = "tx.Commit", "tx.Rollback", "tx.Conn: ", "rows.Conn: ", "batch: "

func inPgx(do work) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		return do(ctx, func(query string) error {
			switch query {
			case byCommit:
				return tx.Commit(ctx)
			case byRollback:
				return tx.Rollback(ctx)
			}
			for by, conn := range map[string]func() (*pgx.Conn, error){
				byConn: func() (*pgx.Conn, error) { return tx.Conn(), nil },
				byRows: func() (*pgx.Conn, error) { return connOf(tx.Query(ctx, "select 1")) },
				byBatch: func() (conn *pgx.Conn, err error) {
					b := &pgx.Batch{}
					b.Queue("select 1").Query(func(rows pgx.Rows) error { conn, err = connOf(rows, nil); return err })
					return conn, errors.Join(tx.SendBatch(ctx, b).Close(), err)
				},
			} {
				if raw, is := strings.CutPrefix(query, by); is {
					c, err := conn()
					if err == nil {
						_, err = c.Exec(ctx, raw)
					}
					return err
				}
			}
			_, err := tx.Exec(ctx, query)
			return err
		})
	}
}

// connOf closes rows and returns their connection.
func connOf(rows pgx.Rows, err error) (*pgx.Conn, error) {
	if err != nil {
		return nil, err
	}
	conn := rows.Conn()
	rows.Close()
	return conn, rows.Err()
}

func inSQL(do work) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		return do(ctx, func(query string) error {
			switch query {
			case byCommit:
				return tx.Commit()
			case byRollback:
				return tx.Rollback()
			}
			_, err := tx.ExecContext(ctx, strings.TrimPrefix(query, byConn))
			return err
		})
	}
}

// A visit sends one intent to one door until it is done.
type visit struct {
	*testing.T
	pool  *pgxpool.Pool
	admin *pgxpool.Pool // used for checks if pool may be refused; else nil
	key   string
	do    work
	told  atomic.Int32 // errors reported by events, answers or dead letters
	calls atomic.Int32

	attempts int  // of a job or delivery; default 3
	repeats  bool // the door promises at least one effect instead of one

	mu   sync.Mutex
	said []string // the reported errors
}

func (v *visit) maxAttempts() int {
	if v.attempts == 0 {
		return 3
	}
	return v.attempts
}

func (v *visit) tell(err error) {
	if err != nil {
		v.told.Add(1)
		v.mu.Lock()
		v.said = append(v.said, err.Error())
		v.mu.Unlock()
	}
}

func (v *visit) hooks() pawl.Hooks {
	return pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) { v.tell(e.Err) }}
}

// octets are the jobs of these tests, for the forms that take a Definition.
var octets = job.Define("k", job.Defaults[[]byte]{})

var print = pawl.FingerprintOf([]byte("payload"))

// soon is the delay before a job or a delivery is retried.
var soon = job.Backoff{Base: time.Millisecond}

// TestMain runs more tests in parallel than there are processors, because they mostly wait for the
// server and for polls.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func (v *visit) job(queue, lane string, h job.Handler) {
	_, err := job.Enqueue(v.Context(), v.eyes(), job.Request{Queue: queue, Kind: "k", Lane: lane, MaxAttempts: v.maxAttempts()})
	if err != nil {
		v.Fatal(err)
	}
	v.drain(queue, h)
}

// drain works on the jobs of a queue until none is left.
func (v *visit) drain(queue string, h job.Handler) {
	cfg := job.Config{Queues: []job.Queue{{Name: queue}}, Handlers: []job.Handler{h}, Backoff: soon, Hooks: v.hooks()}
	if v.admin == nil {
		pawltest.Drain(v, v.pool, cfg)
		return
	}
	cfg.Poll = 10 * time.Millisecond
	worker, err := job.NewWorker(v.pool, cfg)
	if err != nil {
		v.Fatal(err)
	}
	v.watch(worker.Run, func() bool { return v.todo() == 0 })
}

// eyes returns the pool for checks.
func (v *visit) eyes() *pgxpool.Pool {
	if v.admin != nil {
		return v.admin
	}
	return v.pool
}

// watch runs run until no work is left, run has ended, or it was refused repeatedly.
func (v *visit) watch(run func(context.Context) error, done func() bool) {
	ctx, stop := context.WithCancel(v.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	patience.Until(v, "the door is through", func() bool {
		select {
		case err := <-ended:
			ended <- err
			return true
		default:
			return v.told.Load() >= 3 || done()
		}
	})
	stop()
	v.tell(<-ended)
}

// todo returns the number of unfinished jobs.
func (v *visit) todo() int {
	return v.count("select count(*) from pawl.job where status in ('pending', 'processing', 'waiting')")
}

func (v *visit) count(query string) (n int) {
	v.Helper()
	if err := v.eyes().QueryRow(v.Context(), query).Scan(&n); err != nil {
		v.Fatal(err)
	}
	return n
}

func (v *visit) consumer(handler consumer.Handler) {
	source := &pawltest.Source{Invisibility: 300 * time.Millisecond}
	source.Send(pawl.Delivery{Key: v.key, MessageID: v.key, Payload: []byte("payload")})
	cfg := consumer.Config{Name: "orders", Source: source, Handler: handler, Hooks: v.hooks()}
	if v.admin == nil {
		pawltest.Consume(v, v.pool, cfg)
		return
	}
	c, err := consumer.New(v.pool, cfg)
	if err != nil {
		v.Fatal(err)
	}
	v.watch(c.Run, func() bool { return source.Open() == 0 && v.todo() == 0 })
}

// policy sets SoloAfter to a number that no test reaches. From that receive on, a batch would leave
// its delivery to the claim of single deliveries, which is another function.
func (v *visit) policy() consumer.Policy {
	return consumer.Policy{MaxAttempts: v.maxAttempts(), Backoff: soon, SoloAfter: 1000}
}

func (v *visit) applyTx() consumer.TxHandler {
	return consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, _ consumer.Message[[]byte]) error { return inPgx(v.do)(ctx, tx) })
}

func (v *visit) applySQL() consumer.SQLHandler {
	return consumer.HandleSQL(func(ctx context.Context, tx *sql.Tx, _ consumer.Message[[]byte]) error { return inSQL(v.do)(ctx, tx) })
}

// call is the step before a transaction.
func (v *visit) call(context.Context, job.Task[[]byte]) (int, error) { return 1, nil }

func (v *visit) rows() *guard.Rows {
	table := "orders"
	if v.admin != nil { // the search path of admin may differ from that of pool
		table = "public.orders"
	}
	rows, err := guard.New(v.pool, guard.Table{Name: table, Result: "result", CreatedAt: "created_at"})
	if err != nil {
		v.Fatal(err)
	}
	if _, err := v.eyes().Exec(v.Context(), "insert into orders (id) values ($1)", v.key); err != nil {
		v.Fatal(err)
	}
	return rows
}

func (v *visit) thrice(ask func() error) {
	for range 3 {
		v.tell(ask())
	}
}

var doors = map[string]func(*visit){
	"job, HandleTx":          func(v *visit) { v.job("plain", "", v.handleTx()) },
	"job, HandleTx, lane":    func(v *visit) { v.job("laned", v.key, v.handleTx()) },
	"job, HandleTx, archive": func(v *visit) { v.job("archived", "", v.handleTx()) },
	"job, HandleManyTx": func(v *visit) {
		v.job("batch", "", job.HandleManyTx("k", func(ctx context.Context, tx pgx.Tx, _ []job.Task[[]byte]) error { return inPgx(v.do)(ctx, tx) }))
	},
	"job, HandleSQL":          func(v *visit) { v.job("sql", "", v.handleSQL()) },
	"job, HandleSQL, archive": func(v *visit) { v.job("archived", "", v.handleSQL()) },
	"job, HandleManySQL": func(v *visit) {
		v.job("sql batch", "", job.HandleManySQL("k", func(ctx context.Context, tx *sql.Tx, _ []job.Task[[]byte]) error { return inSQL(v.do)(ctx, tx) }))
	},
	"job, HandleThenTx": func(v *visit) {
		v.job("then", "", job.HandleThenTx(octets, v.call, func(ctx context.Context, tx pgx.Tx, _ job.Task[[]byte], _ int) error { return inPgx(v.do)(ctx, tx) }))
	},
	"job, HandleThenSQL": func(v *visit) {
		v.job("sql then", "", job.HandleThenSQL(octets, v.call, func(ctx context.Context, tx *sql.Tx, _ job.Task[[]byte], _ int) error { return inSQL(v.do)(ctx, tx) }))
	},
	"consumer": func(v *visit) {
		v.consumer(v.applyTx().With(consumer.TxPolicy{Policy: v.policy()}))
	},
	"consumer, batch": func(v *visit) {
		v.consumer(consumer.HandleManyTx(func(ctx context.Context, tx pgx.Tx, _ []consumer.Message[[]byte]) error { return inPgx(v.do)(ctx, tx) }).
			With(consumer.ManyTxPolicy{Policy: v.policy()}))
	},
	"consumer, attempt": func(v *visit) {
		v.consumer(consumer.Handle(func(ctx context.Context, a *consumer.Attempt[[]byte]) error { return a.Commit(ctx, inPgx(v.do)) }).With(v.policy()))
	},
	"consumer, HandleSQL": func(v *visit) {
		v.consumer(v.applySQL().With(consumer.TxPolicy{Policy: v.policy()}))
	},
	"consumer, HandleSQL, store": func(v *visit) {
		v.consumer(v.applySQL().With(consumer.TxPolicy{Policy: v.policy(), Mode: consumer.StoreFirst}))
	},
	"consumer, HandleManySQL": func(v *visit) {
		v.consumer(consumer.HandleManySQL(func(ctx context.Context, tx *sql.Tx, _ []consumer.Message[[]byte]) error { return inSQL(v.do)(ctx, tx) }).
			With(consumer.ManyTxPolicy{Policy: v.policy()}))
	},
	"consumer, attempt, SQL": func(v *visit) {
		v.consumer(consumer.Handle(func(ctx context.Context, a *consumer.Attempt[[]byte]) error { return a.CommitSQL(ctx, inSQL(v.do)) }).With(v.policy()))
	},
	"command, Once": func(v *visit) {
		v.thrice(func() error {
			_, err := command.Once(v.Context(), v.pool, pawl.Intent{Scope: "s", Key: v.key, Fingerprint: print},
				command.Options{Hooks: v.hooks()}, func(ctx context.Context, tx pgx.Tx) (int, error) { return 1, inPgx(v.do)(ctx, tx) })
			return err
		})
	},
	"command, OnceSQL": func(v *visit) {
		db := stdlib.OpenDBFromPool(v.pool)
		v.thrice(func() error {
			_, err := command.OnceSQL(v.Context(), db, pawl.Intent{Scope: "sql", Key: v.key, Fingerprint: print},
				command.Options{Hooks: v.hooks()}, func(ctx context.Context, tx *sql.Tx) (int, error) { return 1, inSQL(v.do)(ctx, tx) })
			return err
		})
	},
	"command, Leased": func(v *visit) {
		v.thrice(func() error {
			_, err := command.Leased(v.Context(), v.pool, pawl.Intent{Scope: "leased", Key: v.key, Fingerprint: print},
				command.LeaseOptions{Hooks: v.hooks(), Repeatable: true}, func(ctx context.Context, a *command.Attempt[int]) error {
					return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) (int, error) { return 1, inPgx(v.do)(ctx, tx) })
				})
			return err
		})
	},
	"httpkey": func(v *visit) {
		h := httpkey.Once(v.pool, func(*http.Request) (string, error) { return "tenant", nil },
			httpkey.Options{Hooks: v.hooks()}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error { return inPgx(v.do)(r.Context(), tx) })
		v.thrice(func() error {
			r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("payload"))
			r.Header.Set("Idempotency-Key", `"`+v.key+`"`)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code >= 400 {
				return errors.New(w.Body.String())
			}
			return nil
		})
	},
	"guard, Once": func(v *visit) {
		rows := v.rows()
		v.thrice(func() error {
			return rows.Once(v.Context(), v.key, func(ctx context.Context, tx pgx.Tx) (any, error) { return "done", inPgx(v.do)(ctx, tx) })
		})
	},
	"guard, Claim": func(v *visit) {
		rows := v.rows()
		sweeper, err := rows.Sweeper(guard.SweeperConfig{}, func(context.Context, string) error { return nil })
		if err != nil {
			v.Fatal(err)
		}
		ctx, stop := context.WithCancel(v.Context())
		ran := make(chan struct{})
		go func() { sweeper.Run(ctx); close(ran) }()
		defer func() { stop(); <-ran }()
		v.thrice(func() error {
			var c *guard.Claimed
			patience.Until(v, "the sweeper has begun", func() bool {
				c, err = rows.Claim(v.Context(), v.key)
				return pawl.CodeOf(err) != pawl.CodeArgumentInvalid
			})
			if err != nil {
				return err
			}
			err := c.Commit(v.Context(), func(ctx context.Context, tx pgx.Tx) (any, error) { return "done", inPgx(v.do)(ctx, tx) })
			if err != nil {
				v.tell(c.Fail(v.Context(), err))
			}
			return err
		})
	},
}

func (v *visit) handleTx() job.Handler {
	return job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, _ job.Task[[]byte]) error { return inPgx(v.do)(ctx, tx) })
}

func (v *visit) handleSQL() job.Handler {
	return job.HandleSQL("k", func(ctx context.Context, tx *sql.Tx, _ job.Task[[]byte]) error { return inSQL(v.do)(ctx, tx) })
}

// attacks are the statements that a handler sends between two rows.
var attacks = map[string][]string{
	"commit":                                {"commit"},
	"rollback":                              {"rollback"},
	"tx.Commit":                             {byCommit},
	"tx.Rollback":                           {byRollback},
	"tx.Rollback, then a row":               {byRollback, insertAfter},
	"commit and chain":                      {"commit and chain"},
	"rollback and chain":                    {"rollback and chain"},
	"commit, begin":                         {"commit", "begin"},
	"rollback, begin":                       {"rollback", "begin"},
	"commit; begin":                         {"commit; begin"},
	"end, start":                            {"end", "start transaction isolation level serializable"},
	"abort, begin":                          {"abort", "begin"},
	"savepoint pawl":                        {"savepoint pawl"},
	"release pawl":                          {"release savepoint pawl"},
	"rollback to pawl":                      {"rollback to savepoint pawl"},
	"prepare transaction":                   {"prepare transaction 'x'"},
	"roll back, commit what follows, chain": {"rollback and chain", insertAfter, "commit and chain"},
	"roll back, commit what follows":        {"rollback", "begin", insertAfter, "commit"},
	"roll back, commit what follows, begin": {"rollback; begin", insertAfter, "commit; begin"},
	"roll back, commit what follows, fail":  {"rollback and chain", insertAfter, "commit and chain", failing},
	"fail, commit what follows, fail":       {failing, "rollback; begin", insertAfter, "commit; begin", failing},
	"set session":                           {"set default_transaction_read_only = on"},
	"set session transaction":               {"set session characteristics as transaction read only"},
}

// insertAfter is sent literally, except for the key.
const insertAfter = "insert into effect values ('KEY', 'after')"

// failing fails and leaves an aborted transaction. The handler continues if statements follow.
const failing = "do $$ begin raise object_in_use; end $$"

// harmless attacks leave the transaction intact, so a successful handler has one effect.
var harmless = []string{"savepoint pawl", "set session", "set session transaction"}

// No action of a handler in its transaction makes a door double an effect or hide an error.
func TestDoors_NoAttackDoublesAnEffect(t *testing.T) {
	t.Parallel()
	for door, ask := range doors {
		t.Run(door, func(t *testing.T) {
			t.Parallel()
			pool := pawltest.DB(t, schema)
			for attack, texts := range attacks {
				if !played(door, attack) {
					continue
				}
				for end, err := range map[string]error{"nil": nil, "error": errors.New("boom")} {
					t.Run(attack+", "+end, func(t *testing.T) { attackOnce(t, pool, ask, attack, "", texts, err) })
					if !strings.Contains(door, "SQL") && texts[0] != byCommit && texts[0] != byRollback && !isHarmless(attack) {
						t.Run(attack+", through the connection, "+end, func(t *testing.T) { attackOnce(t, pool, ask, attack, byConn, texts, err) })
						if end == "nil" && texts[len(texts)-1] != failing {
							t.Run(attack+", through that of rows", func(t *testing.T) { attackOnce(t, pool, ask, attack, byRows, texts, err) })
							t.Run(attack+", through that of a batch", func(t *testing.T) { attackOnce(t, pool, ask, attack, byBatch, texts, err) })
						}
					}
				}
			}
		})
	}
}

// played reports whether an attack is played at a door. The gate plays a fixed quarter of them.
func played(door, attack string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(door + attack))
	return h.Sum32()%oneIn == 0
}

func attackOnce(t *testing.T, pool *pgxpool.Pool, ask func(*visit), attack, through string, texts []string, end error) {
	v := &visit{T: t, pool: pool, key: pawl.Key(t.Name())}
	v.do = func(ctx context.Context, exec func(string) error) error {
		v.calls.Add(1)
		if err := exec("insert into effect values ('" + v.key + "', 'before')"); err != nil {
			return err
		}
		for n, text := range texts {
			last := n == len(texts)-1
			if text != byCommit && text != byRollback {
				text = through + strings.ReplaceAll(text, "KEY", v.key)
			}
			if err := exec(text); err != nil && (last || !strings.HasSuffix(text, failing)) {
				return err
			}
		}
		// Otherwise the row would be durable by itself.
		if len(texts) == 2 || strings.Contains(attack, "chain") || strings.Contains(attack, ";") {
			if err := exec(through + "insert into effect values ('" + v.key + "', 'after')"); err != nil {
				return err
			}
		}
		return end
	}
	ask(v)
	var before, after int
	err := pool.QueryRow(t.Context(), "select count(*) filter (where e.part = 'before'), count(*) filter (where e.part = 'after') from effect as e where e.key = $1",
		v.key).Scan(&before, &after)
	if err != nil {
		t.Fatal(err)
	}
	if before > 1 || after > 1 {
		t.Errorf("doubled: %d rows from before, %d from after; %d calls", before, after, v.calls.Load())
	}
	fine := end == nil && isHarmless(attack)
	if fine && before != 1 {
		t.Errorf("%d effects of a handler that did no harm", before)
	}
	if !fine && v.told.Load() == 0 {
		t.Errorf("no error was reported: %d rows from before, %d from after; %d calls", before, after, v.calls.Load())
	}
}

func isHarmless(attack string) bool {
	for _, h := range harmless {
		if h == attack {
			return true
		}
	}
	return false
}
