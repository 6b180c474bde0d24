// Package standbytest tests Pawl with synchronous replication: nothing is acknowledged or answered
// before the standby has it, even if the waiting COMMIT is cancelled or lost.
package standbytest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/doctor"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
)

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func logTo(t *testing.T, name string) pawl.Hooks {
	return pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Err != nil && t.Context().Err() == nil {
			t.Logf("%s: %s %s: %v", name, e.Kind, e.Op, e.Err)
		}
	}}
}

func pair(t *testing.T) *servers {
	t.Helper()
	return newServers(t, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := migrate.Up(ctx, conn, nil); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, schema)
		return err
	})
}

func poolOf(t *testing.T, url string, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 40
	if configure != nil {
		configure(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func watch(c *pgxpool.Config)   { pawl.Watch(c.ConnConfig, pawl.Watching{}) }
func patient(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = patientName }

// An answers collects the doors that were answered positively.
type answers struct {
	mu    sync.Mutex
	names []string
	all   sync.WaitGroup
}

func (a *answers) given() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.names))
}

// ask repeats a call until it succeeds.
func (a *answers) ask(ctx context.Context, name string, call func(context.Context) error) {
	a.all.Go(func() {
		if patience.Poll(ctx, func() bool { return call(ctx) == nil }) == nil {
			a.mu.Lock()
			a.names = append(a.names, name)
			a.mu.Unlock()
		}
	})
}

// has reports whether all names were answered. For no names it returns false.
func (a *answers) has(names []string) bool {
	given := a.given()
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(given, name) })
}

// holdFor is how long the test watches for answers that must not come.
const holdFor = 1500 * time.Millisecond

// cutOff makes every door commit while the standby is cut off. An operator cancels all waits, so
// all rows are visible and none is replicated. Then it calls every door again. It returns the doors
// that were answered anyway, as soon as those of caught are among them.
func cutOff(t *testing.T, p *servers, rollback bool, caught ...string) (b *bed, doors []door, a *answers) {
	t.Helper()
	b = newBed(t, p.URL())
	b.rollback = rollback
	doors = b.doors()
	ctx, cancel := context.WithCancel(context.Background())
	a = &answers{}
	t.Cleanup(func() { cancel(); a.all.Wait() })
	t.Cleanup(func() { p.Synchronous("") }) // ends the remaining waits

	operator := b.unreplicated(ctx, p, doors, a)
	for _, d := range doors {
		a.ask(ctx, d.name, d.again)
	}
	if len(caught) > 0 {
		patience.Until(t, fmt.Sprintf("an answer that must not come, of %v", caught), func() bool { return a.has(caught) })
	} else {
		patience.Watch(holdFor, func() {})
	}
	operator()
	return b, doors, a
}

// unreplicated cuts the standby off and makes the first call of every door. It returns once all
// their writes are visible and not replicated, because an operator cancels each wait for the
// standby until stop is called.
func (b *bed) unreplicated(ctx context.Context, p *servers, doors []door, a *answers) (stop func()) {
	p.Cut()
	for _, d := range doors {
		if d.mute {
			go func() { _ = d.first(ctx) }()
			continue
		}
		a.ask(ctx, d.name+", first", d.first)
	}
	cancelling, end := context.WithCancel(context.WithoutCancel(ctx))
	var operator sync.WaitGroup
	operator.Go(func() { _ = patience.Poll(cancelling, func() bool { p.CancelWaiting(); return false }) })
	look := poolOf(b.T, p.URL(), nil)
	for _, d := range doors { // checks that the attack works
		untilTrue(b.T, look, d.row)
	}
	look.Close()
	return func() {
		end()
		operator.Wait()
	}
}

func untilTrue(t *testing.T, pool *pgxpool.Pool, condition string) {
	t.Helper()
	patience.Until(t, condition, func() bool { return isTrue(t, pool, condition) })
}

func isTrue(t *testing.T, pool *pgxpool.Pool, condition string) (is bool) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), "select "+condition).Scan(&is); err != nil {
		t.Fatalf("%s: %v", condition, err)
	}
	return is
}

// A COMMIT that waited for its standby was cancelled. A repeated call, through any door, is
// answered once the standby has the commit.
func TestAnswers_WaitForTheStandby(t *testing.T) {
	t.Parallel()
	p := pair(t)
	_, doors, a := cutOff(t, p, false)
	if early := a.given(); len(early) > 0 {
		t.Errorf("answered before the standby had it: %q", early)
	}
	p.Join()
	want := 2*len(doors) - 1 // a new claim asks about an attempt whose end is unknown
	for _, d := range doors {
		if d.mute {
			want--
		}
	}
	patience.Until(t, fmt.Sprintf("%d answers after the standby came back", want), func() bool { return len(a.given()) >= want })
	standby := poolOf(t, p.StandbyURL(), nil)
	for _, d := range doors {
		untilTrue(t, standby, d.row)
	}
}

// The reply to the COMMIT of a final failure was lost. The COMMIT that recorded the failure again
// was cancelled, on a connection without Watch. The failure is returned once the standby has it.
func TestOnce_AFailureRecordedTwiceWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	p := pair(t)
	pool := poolOf(t, p.URL(), nil)
	p.Cut()
	t.Cleanup(func() { p.Synchronous("") })
	answered := make(chan error, 1)
	go func() {
		_, err := command.Once(context.Background(), pool, intent("told twice"), command.Options{Wait: -1}, func(context.Context, pgx.Tx) (string, error) {
			return "", pawl.Final(errors.New("no"))
		})
		answered <- err
	}()
	waits := "exists (select from pg_stat_activity as a where a.wait_event = 'SyncRep')"
	p.Until("select " + waits)
	p.Exec("select pg_terminate_backend(a.pid) from pg_stat_activity as a where a.wait_event = 'SyncRep'")
	// Visible, but not replicated.
	p.Until("select exists (select from pawl.command as c where c.key = 'told twice')")
	p.Until("select " + waits)
	var err error
	patience.Watch(holdFor, func() {
		p.CancelWaiting()
		select {
		case err = <-answered:
			if errors.Is(err, pawl.ErrFailedFinal) {
				t.Fatalf("answered before the standby had it: %v", err)
			}
		default:
		}
	})
	p.Join()
	if err != nil {
		return // an unknown outcome is not an answer
	}
	if err := <-answered; !errors.Is(err, pawl.ErrFailedFinal) && !pawl.MayHaveHappened(err) {
		t.Errorf("got %v", err)
	}
}

// The reply to COMMIT did not come, and the transaction still waits. A caller that gives up, even
// while it asks for the outcome, gets the error that the command may have happened. It does not get
// a conflict or the claim that nothing was done.
func TestOnce_ItsOwnLostTransactionIsNoConflict(t *testing.T) {
	t.Parallel()
	const giveUp = 300 * time.Millisecond
	p := pair(t)
	pool := poolOf(t, p.URL(), func(c *pgxpool.Config) {
		pawl.Watch(c.ConnConfig, pawl.Watching{CommitTimeout: 200 * time.Millisecond})
	})
	rows, err := guard.New(pool, guard.Table{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = pool.Exec(t.Context(), "insert into orders (id) select n from generate_series(100, 107) as n")
	if err != nil {
		t.Fatal(err)
	}
	look := poolOf(t, p.URL(), nil)
	p.Cut()
	t.Cleanup(func() { p.Synchronous("") })
	var calls sync.WaitGroup
	for n := range 8 {
		for form, call := range map[string]func(ctx context.Context, lost func(pid uint32)) error{
			"command": func(ctx context.Context, lost func(pid uint32)) error {
				name := fmt.Sprint("own ", n)
				_, err := command.Once(ctx, pool, intent(name), command.Options{Wait: -1, Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
					if e.Kind == pawl.EventCommitUnknown {
						lost(0)
					}
				}}}, func(ctx context.Context, tx pgx.Tx) (string, error) {
					return "done", insert(ctx, tx, name)
				})
				return err
			},
			"guard": func(ctx context.Context, lost func(pid uint32)) error {
				return rows.Once(ctx, int64(100+n), func(ctx context.Context, tx pgx.Tx) (any, error) {
					lost(tx.Conn().PgConn().PID()) // its COMMIT will be lost
					return nil, insert(ctx, tx, fmt.Sprint("own row ", n))
				})
			},
		} {
			calls.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				wait := time.Duration(n) * giveUp
				var giving sync.WaitGroup
				defer giving.Wait()
				err := call(ctx, func(pid uint32) {
					giving.Go(func() {
						_ = patience.Poll(ctx, func() (waits bool) {
							err := look.QueryRow(ctx, "select $1 = 0 or exists (select from pg_stat_activity as a where a.pid = $1 and a.wait_event = 'SyncRep')", int(pid)).Scan(&waits)
							return err == nil && waits
						})
						patience.Elapse(wait) // each at another moment
						cancel()
					})
				})
				if !pawl.MayHaveHappened(err) || errors.Is(err, pawl.ErrInProgress) {
					t.Errorf("%s, given up %v after the reply was lost: %v", form, wait, err)
				}
			})
		}
	}
	calls.Wait()
}

// The reply to COMMIT did not come, the transaction became visible, and the call waits until the
// standby has it. A caller that gives up then also learns that the command may have happened.
func TestOnce_GivenUpWhileItsOwnAnswerIsNotReplicated(t *testing.T) {
	t.Parallel()
	p := pair(t)
	pool := poolOf(t, p.URL(), watch)
	p.Cut()
	t.Cleanup(func() { p.Synchronous("") })
	ctx, giveUp := context.WithCancelCause(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := command.Once(ctx, pool, intent("given up"), command.Options{Wait: -1}, func(ctx context.Context, tx pgx.Tx) (string, error) {
			return "done", insert(ctx, tx, "given up")
		})
		answered <- err
	}()
	p.Until("select exists (select from pg_stat_activity as a where a.wait_event = 'SyncRep')")
	p.CancelWaiting()
	p.Until("select exists (select from pg_stat_activity as a where a.wait_event = 'SyncRep' and a.query like '%_unreplicated%')")
	bored := errors.New("bored")
	giveUp(bored)
	if err := <-answered; !pawl.MayHaveHappened(err) || !errors.Is(err, bored) {
		t.Errorf("got %v", err)
	}
}

// A standby answers no command, not even a lookup, because another standby that is promoted may
// lack the command. Once promoted, it answers.
func TestOnce_AStandbyDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := pair(t)
	b := &bed{T: t, watched: poolOf(t, p.URL(), watch), plain: poolOf(t, p.URL(), nil)}
	looked := b.onceLooked()
	b.must(looked.first(t.Context()))
	standby := poolOf(t, p.StandbyURL(), nil)
	untilTrue(t, standby, looked.row)
	b.plain = standby
	ask := func(scope string) error {
		i := pawl.Intent{Scope: scope, Key: "once looked", Fingerprint: pawl.FingerprintOf([]byte("once looked"))}
		_, err := command.Once(t.Context(), standby, i, command.Options{Wait: -1}, func(context.Context, pgx.Tx) (string, error) {
			return "", errors.New("it ran again")
		})
		return err
	}
	for range 20 {
		if err := ask("looked"); pawl.CodeOf(err) != "25006" {
			t.Fatalf("a standby answers: %v", err)
		}
	}
	p.Promote()
	untilTrue(t, standby, "not pg_is_in_recovery()")
	b.must(ask("looked"))
}

// The standby is promoted without the commits that it missed. Every answered intent exists there.
func TestAnswers_SurviveTheFailover(t *testing.T) {
	t.Parallel()
	p := pair(t)
	before := poolOf(t, p.URL(), watch)
	b := &bed{T: t, watched: before}
	_, err := before.Exec(t.Context(), "insert into effect values ('before')")
	b.must(err)
	_, doors, a := cutOff(t, p, false)
	p.Promote()
	standby := poolOf(t, p.StandbyURL(), nil)
	untilTrue(t, standby, "not pg_is_in_recovery()")
	untilTrue(t, standby, effectOf("before"))
	for _, name := range a.given() {
		t.Errorf("%s was answered, and is not on the new primary", name)
	}
	for _, d := range doors {
		if isTrue(t, standby, d.row) {
			t.Errorf("%s is on the new primary: it was not cut off", d.name)
		}
	}
}

// Known errors in the barrier are each found by an answer that comes too early.
// docs/reference/mutants.md lists them.
func TestMutants_OfTheBarrierAreCaught(t *testing.T) {
	t.Parallel()
	const (
		replace = "create or replace function pawl_v1._unreplicated() returns jsonb language plpgsql as $$ begin %s; end $$"
		here    = "return jsonb_build_object('unreplicated', extract(epoch from pg_postmaster_start_time())::text)"
	)
	for name, c := range map[string]struct {
		body     string
		rollback bool
		caught   []string
	}{
		"NOBARRIER": {body: here, caught: []string{"append", "append many", "step", "enqueue", "enqueue many", "consumer batch", "consumer inline", "consumer stored", "consumer semantic", "consumer trigger", "guard", "guard fails", "http", "leased", "once", "once final",
			"process a dead letter", "process the finished", "psql", "release"}},
		"IDONLY": {body: "perform pg_current_xact_id(); " + here, caught: []string{"append", "append many", "step", "enqueue", "enqueue many", "consumer batch", "consumer inline", "consumer stored", "consumer semantic", "consumer trigger", "guard", "guard fails", "http", "leased", "once", "once final",
			"process a dead letter", "process the finished", "psql", "release"}},
		"ROLLBACK": {rollback: true, caught: []string{"append", "append many", "psql"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pair(t)
			if c.body != "" {
				p.Exec(fmt.Sprintf(replace, c.body))
			}
			_, _, a := cutOff(t, p, c.rollback, c.caught...)
			early := a.given()
			t.Logf("answered before the standby had it: %q", early)
			for _, door := range c.caught {
				if !slices.Contains(early, door) {
					t.Errorf("not found through %q; answered too early: %q", door, early)
				}
			}
		})
	}
}

// Our timeout does not cancel a COMMIT that waits for its standby. Its rows stay invisible until
// the standby has them, and its connection returns to the pool.
func TestPatience_CancelsNoCommitThatWaitsForItsStandby(t *testing.T) {
	t.Parallel()
	p := pair(t)
	pool := poolOf(t, p.URL(), func(c *pgxpool.Config) {
		pawl.Watch(c.ConnConfig, pawl.Watching{CommitTimeout: 300 * time.Millisecond})
	})
	look := poolOf(t, p.URL(), nil)
	for name, commit := range map[string]func() error{
		"opened": func() error {
			tx, err := txn.Open(t.Context(), pool, "x", "", time.Minute, func(b *pgx.Batch) { b.Queue("insert into effect values ('opened')") })
			if err != nil {
				return err
			}
			defer txn.Rollback(t.Context(), tx)
			return tx.CommitWith(t.Context(), "x", func(*pgx.Batch) {})
		},
		"begun": func() error {
			tx, err := txn.Begin(t.Context(), pool, "x", time.Minute)
			if err != nil {
				return err
			}
			defer txn.Rollback(t.Context(), tx)
			if err := insert(t.Context(), tx, "begun"); err != nil {
				return err
			}
			return txn.Commit(t.Context(), "x", tx)
		},
	} {
		p.Cut()
		if err := commit(); !pawl.MayHaveHappened(err) {
			t.Fatalf("%s: got %v, want an unknown outcome", name, err)
		}
		patience.Until(t, name+": its COMMIT waits", func() bool { return p.Waiting() == 1 })
		waits := true
		// Several times the limit.
		patience.Watch(5*300*time.Millisecond, func() { waits = waits && p.Waiting() == 1 })
		if !waits {
			t.Errorf("%s: our patience has cancelled a COMMIT", name)
		}
		if isTrue(t, look, effectOf(name)) {
			t.Errorf("%s: visible before the standby had it", name)
		}
		p.Join()
		untilTrue(t, look, effectOf(name))
		patience.Until(t, name+": all connections have come back", func() bool { return pool.Stat().AcquiredConns() == 0 })
	}
}

// An event that became visible by an operator's cancel is published once the standby has it,
// because the relay's claim is a write and waits.
func TestRelay_PublishesWhatIsReplicated(t *testing.T) {
	t.Parallel()
	p := pair(t)
	pool := poolOf(t, p.URL(), watch)
	var published atomic.Int32
	relay, err := outbox.NewRelay(pool, outbox.Config{Hooks: logTo(t, "relay"), Poll: 50 * time.Millisecond, Presence: job.Presence{Off: true},
		Sink: outbox.Func(func(context.Context, pawl.Message) error { published.Add(1); return nil })})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	t.Cleanup(func() { p.Synchronous(""); cancel(); <-done })
	add := func(name string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := outbox.Append(ctx, tx, outbox.Event{Type: "made", Scope: "relay", Key: name})
			return err
		})
	}
	if err := add("before"); err != nil {
		t.Fatal(err)
	}
	until(t, "the relay publishes", func() bool { return published.Load() == 1 })

	p.Cut()
	go func() { _ = add("cut off") }()
	until(t, "the event is visible", func() bool {
		p.CancelWaiting()
		return isTrue(t, pool, "exists (select from pawl_v1.outbox_events as e where e.event_id like '%cut off%')") || published.Load() > 1
	})
	patience.Watch(holdFor, func() { p.CancelWaiting() })
	if n := published.Load(); n > 1 {
		t.Errorf("%d events were published before the standby had them", n-1)
	}
	p.Join()
	until(t, "it is published", func() bool { return published.Load() > 1 })
}

// onStandby is how long all connections reach a standby. In the acceptance run it was 30 s.
const onStandby = 5 * time.Second

// While every connection reaches a standby, the consumer receives almost nothing. Then it finds the
// primary by itself.
func TestConsumer_AllConnectionsOnAStandby(t *testing.T) {
	t.Parallel()
	p := pair(t)
	var astray atomic.Bool
	standby, err := pgx.ParseConfig(p.StandbyURL())
	if err != nil {
		t.Fatal(err)
	}
	pool := poolOf(t, p.URL(), func(c *pgxpool.Config) {
		c.MaxConns = 10
		c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			if astray.Load() {
				c.Host, c.Port = standby.Host, standby.Port
			}
			return nil
		}
	})
	source, counters := &pawltest.Source{Invisibility: 3 * time.Second}, &pawl.Counters{}
	f, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source, Hooks: counters.Hooks(),
		Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error { return insert(ctx, tx, d.Key) })})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	source.Send(pawl.Delivery{Key: "before", Payload: []byte("x")})
	until(t, "the consumer works", func() bool { return source.Open() == 0 })

	astray.Store(true)
	pool.Reset()
	before := source.Receives()
	const messages = 50
	for i := range messages {
		source.Send(pawl.Delivery{Key: fmt.Sprint(i), Payload: []byte("x")})
	}
	var received int
	patience.Watch(onStandby, func() { received = source.Receives() - before })
	astray.Store(false)
	back := time.Now()
	until(t, "there is progress", func() bool { return source.Open() < messages })
	progress := time.Since(back)
	until(t, "all is acknowledged", func() bool { return source.Open() == 0 })
	t.Logf("%d receives of %d messages in %v on a standby; progress %v after its end", received, messages, onStandby, progress.Round(time.Millisecond))
	if received > messages {
		t.Errorf("%d receives of %d messages while all connections reached a standby", received, messages)
	}
	if n := counters.Count(pawl.EventSuspect); n > 0 {
		t.Errorf("%d good messages became suspects", n)
	}
}

func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	patience.Until(t, what, reached)
}

// Doctor reports what delays answers that wait for a standby.
func TestDoctor_LooksAtReplication(t *testing.T) {
	t.Parallel()
	p := pair(t)
	conn, err := pgx.Connect(t.Context(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	wrong := func() []string { t.Helper(); return diagnosed(t, conn, "replication") }
	if found := wrong(); len(found) > 0 {
		t.Errorf("a healthy pair: %q", found)
	}
	for _, c := range []struct{ do, undo, want string }{
		{"alter role postgres set synchronous_commit = local", "alter role postgres reset synchronous_commit", "for role postgres"},
		{"select pawl_v1.worker_heartbeat((select w.worker_id from pawl_v1.worker_register('w') as w), '{\"report\": {\"queues\": []}}')", "delete from pawl.worker", "does not notice"},
		{"alter system set synchronous_standby_names = 'another'", "alter system set synchronous_standby_names = 'pair'", "no synchronous standby"},
	} {
		p.Exec(c.do, "select pg_reload_conf()")
		until(t, c.want, func() bool {
			return slices.ContainsFunc(wrong(), func(w string) bool { return strings.Contains(w, c.want) })
		})
		p.Exec(c.undo, "select pg_reload_conf()")
		until(t, "it is well again", func() bool { return len(wrong()) == 0 })
	}
}

// diagnosed returns the findings of one check of doctor.
func diagnosed(t *testing.T, conn *pgx.Conn, check string) (all []string) {
	t.Helper()
	d, err := doctor.Diagnose(t.Context(), conn, doctor.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range d.Findings {
		if f.Check == check && f.Why != "" && f.Fix != "" {
			all = append(all, f.What)
		}
	}
	return all
}

// Doctor reports the cost of a failover now. If a single synchronous standby is lost, every commit
// stops. An asynchronous standby lacks some commits. A standby accepts no work.
func TestDoctor_LooksAtStandbys(t *testing.T) {
	t.Parallel()
	p := pair(t)
	primary, standby := connect(t, p.URL()), connect(t, p.StandbyURL())
	untilSays := func(conn *pgx.Conn, want string) {
		t.Helper()
		until(t, want, func() bool {
			found := diagnosed(t, conn, "standbys")
			return len(found) == 1 && strings.Contains(found[0], want)
		})
	}
	untilSays(primary, "1 standby is connected, and 1 must have each commit")
	untilSays(standby, "this connection is to a standby")

	p.Synchronous("")
	untilSays(primary, "commits wait for no standby: the slowest of 1 standby is ")
	var receiver int
	if err := standby.QueryRow(t.Context(), "select r.pid from pg_stat_wal_receiver as r").Scan(&receiver); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(receiver, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awake := sync.OnceFunc(func() { _ = syscall.Kill(receiver, syscall.SIGCONT) })
	t.Cleanup(awake)
	p.Exec("insert into effect select repeat('x', 1000) from generate_series(1, 1000)")
	behind := regexp.MustCompile(`is (\d{7,}) octets and ([1-9]\d*m?s|[1-9][\d.]*s) behind`)
	until(t, "a megabyte behind", func() bool {
		found := diagnosed(t, primary, "standbys")
		return len(found) == 1 && behind.MatchString(found[0])
	})
	awake()

	// With a second one, the loss of either stops no commit.
	p.Synchronous("pair")
	startStandby(t, p.primary, "second")
	until(t, "nothing is found", func() bool { return len(diagnosed(t, primary, "standbys")) == 0 })
	p.Synchronous("ANY 2 (pair, second)")
	untilSays(primary, "2 standbys are connected, and 2 must have each commit")
}

func connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), url)
	must(tb, err)
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
