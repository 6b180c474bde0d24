//go:build proof

package pawlredis_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/filter/pawlredis"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/migrate"
)

// workerEnv makes the test's program a worker.
const workerEnv = "PAWL_FILTER_WORKER" // URL, address of Redis, address of the broker

func TestMain(m *testing.M) {
	if told := os.Getenv(workerEnv); told != "" {
		if err := work(strings.Fields(told)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// work consumes until it is killed or told to stop.
func work(told []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, told[0])
	if err != nil {
		return err
	}
	client, err := rpc.Dial("tcp", told[2])
	if err != nil {
		return err
	}
	filter, err := pawlredis.Open(&redis.UniversalOptions{Addrs: []string{told[1]}}, pawlredis.Config{Pause: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	report := newReport(client)
	c, err := consumer.New(pool, consumer.Config{Name: "counted", Source: remoteSource{client}, Filter: filter, Hooks: report.hooks(),
		Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
			_, err := tx.Exec(ctx, "insert into effect (key) values ($1)", m.Key)
			return err
		})})
	if err != nil {
		return err
	}
	for ctx.Err() == nil { // the database may be away at the start
		if err := c.Run(ctx); err != nil && !pawl.Retryable(err) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

// A report counts events and sends the counts. A kill loses those of a tenth of a second.
type report struct {
	mu     sync.Mutex
	counts map[pawl.EventKind]int
}

func newReport(client *rpc.Client) *report {
	r := &report{counts: map[pawl.EventKind]int{}}
	go func() {
		for range time.Tick(100 * time.Millisecond) {
			r.mu.Lock()
			counts := r.counts
			r.counts = map[pawl.EventKind]int{}
			r.mu.Unlock()
			_ = client.Call("Broker.Count", counts, &struct{}{})
		}
	}()
	return r
}

func (r *report) hooks() pawl.Hooks {
	return pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		r.mu.Lock()
		r.counts[e.Kind] += max(e.Count, 1)
		r.mu.Unlock()
		if e.Err != nil {
			fmt.Fprintln(os.Stderr, e.Kind, e.Op, e.Err)
		}
	}}
}

// A run is a database, a Redis, a broker, and workers that are killed.
type run struct {
	*testing.T
	random *rand.Rand // of the test's goroutine
	broker *broker
	redis  *brokers.Server
	client *redis.Client
	data   string // the data directory of PostgreSQL
	server *postgres.Server

	mu      sync.Mutex
	workers []*exec.Cmd
	log     bytes.Buffer
	old     map[string]string // marks of an earlier time
	done    map[string]int    // disturbances, by name
}

const workers = 3

// Deliveries take effect once while workers die, Redis dies, hangs, forgets and lies, and
// PostgreSQL is restored, promoted with loss, and forgets. Nine of ten deliveries are duplicates.
func TestCounted(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := &run{T: t, random: rand.New(rand.NewPCG(seed, 0)), broker: startBroker(t), data: filepath.Join(shortDir(t), "data"), done: map[string]int{}}
	r.redis, r.client = startRedis(t)
	r.startPostgres()
	r.exec("create table effect (key text not null)")
	for range workers {
		r.spawn()
	}
	t.Cleanup(func() {
		r.killAll()
		if t.Failed() {
			t.Log(tailOf(r.log.String()))
		}
	})
	const each = 1000
	keys := func(part string) (all []string) {
		for n := range each {
			all = append(all, fmt.Sprintf("%s-%d", part, n))
		}
		return all
	}

	// Workers die, and Redis dies, hangs, forgets and lies.
	first := keys("first")
	r.deliver(first, 10)
	r.wantEffects("first", first, 1)

	// A base backup is taken, more takes effect, and the backup is restored.
	backup := r.backUp()
	lost := keys("lost")
	r.deliver(lost, 10)
	r.wantEffects("lost", lost, 1)
	r.keepMarks(lost)
	r.restore(backup, false)
	r.wantEffects("after the restore: lost", lost, 0)
	r.putMarks()
	r.deliver(append(lost, first...), 5)
	r.wantEffects("restored: first", first, 1)
	r.wantEffects("restored: lost", lost, 1)

	// A standby is promoted that has not received the last commits.
	standby := r.backUp()
	late := keys("late")
	r.deliver(late, 10)
	r.keepMarks(late)
	r.restore(standby, true)
	r.wantEffects("after the promotion: late", late, 0)
	r.putMarks()
	r.deliver(append(late, lost...), 5)
	r.wantEffects("promoted: lost", lost, 1)
	r.wantEffects("promoted: late", late, 1)

	// The server crashes and keeps what it has acknowledged.
	r.server.Stop() //nolint:errcheck // its next start says so
	r.startPostgres()
	r.deliver(late, 5)
	r.wantEffects("restarted: late", late, 1)

	// An operator forgets some deliveries, which come again.
	r.keepMarks(late)
	forgotten := late[:50]
	for _, key := range forgotten {
		r.exec("select pawl_v1.inbox_forget('counted', $1, 'me', 'it was wrong')", key)
	}
	r.putMarks()
	r.deliver(late, 5)
	r.wantEffects("forgotten", forgotten, 2)
	r.wantEffects("not forgotten", late[50:], 1)

	// The inbox purges rows while their marks are kept.
	r.keepMarks(first)
	r.killAll() // their promises to remember end
	r.exec("update pawl.consumer set seen_at = seen_at - interval '1 year'")
	for {
		var purged int
		r.query("select p.purged from pawl_v1.inbox_purge('counted', 1, 10000) as p", &purged)
		if purged == 0 {
			break
		}
	}
	for range workers {
		r.spawn()
	}
	r.putMarks()
	r.deliver(first, 5)
	r.wantEffects("purged", first, 2)

	filtered, skipped, succeeded := r.broker.count(pawl.EventDuplicateFiltered), r.broker.count(pawl.EventDuplicateSkipped), r.broker.count(pawl.EventSucceeded)
	t.Logf("counted: filter: %d messages acknowledged, 0 lost, 0 doubled; %d effects, %d duplicates found by the filter, %d by the database; %s",
		r.broker.acked, succeeded, filtered, skipped, strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(r.done), "map["), "]"))
	if filtered < each {
		t.Errorf("only %d duplicates were filtered: the run shows nothing", filtered)
	}
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pf") // short, for the name of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // postgres is another user
		t.Fatal(err)
	}
	return dir
}

func (r *run) startPostgres() {
	r.Helper()
	var err error
	if r.server, err = postgres.Start(r.Context(), postgres.Options{DataDir: r.data}); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = r.server.Stop() })
	conn, err := pgx.Connect(r.Context(), r.url())
	if err != nil {
		r.Fatal(err)
	}
	defer conn.Close(context.Background())
	var promoted bool
	if err := conn.QueryRow(r.Context(), "select not pg_is_in_recovery() or pg_promote()").Scan(&promoted); err != nil || !promoted {
		r.Fatal("it is not promoted: ", err)
	}
	if _, err := migrate.Up(r.Context(), conn, nil); err != nil {
		r.Fatal(err)
	}
}

func (r *run) url() string { return r.server.URL("postgres") }

func (r *run) exec(statement string, args ...any) {
	r.Helper()
	conn, err := pgx.Connect(r.Context(), r.url())
	if err == nil {
		_, err = conn.Exec(r.Context(), statement, args...)
		_ = conn.Close(context.Background())
	}
	if err != nil {
		r.Fatal(err)
	}
}

func (r *run) query(query string, into ...any) {
	r.Helper()
	conn, err := pgx.Connect(r.Context(), r.url())
	if err == nil {
		err = conn.QueryRow(r.Context(), query).Scan(into...)
		_ = conn.Close(context.Background())
	}
	if err != nil {
		r.Fatal(err)
	}
}

// backUp copies the files of the working server, as pg_basebackup does.
func (r *run) backUp() string {
	r.Helper()
	conn, err := pgx.Connect(r.Context(), r.url())
	if err != nil {
		r.Fatal(err)
	}
	defer conn.Close(context.Background())
	at := filepath.Join(shortDir(r.T), "backup")
	var label string
	if _, err := conn.Exec(r.Context(), "select pg_backup_start('nightly', true)"); err != nil {
		r.Fatal(err)
	}
	_, _ = exec.Command("cp", "-a", r.data, at).CombinedOutput() // files that vanish are in the WAL
	for _, running := range []string{"postmaster.pid", "postmaster.opts", "pg_wal"} {
		if err := os.RemoveAll(filepath.Join(at, running)); err != nil {
			r.Fatal(err)
		}
	}
	if err := conn.QueryRow(r.Context(), "select b.labelfile from pg_backup_stop(false) as b").Scan(&label); err != nil {
		r.Fatal(err)
	}
	_, _ = exec.Command("cp", "-a", filepath.Join(r.data, "pg_wal"), filepath.Join(at, "pg_wal")).CombinedOutput()
	r.write(at, "backup_label", label)
	return at
}

// write writes a file that the owner of the directory can read.
func (r *run) write(dir, name, text string) {
	r.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
	if out, err := exec.Command("chown", "--reference="+dir, file).CombinedOutput(); err != nil {
		r.Fatalf("%v: %s", err, out)
	}
}

// restore replaces the server by a backup, while the workers run. As a standby, it is promoted.
func (r *run) restore(backup string, standby bool) {
	r.Helper()
	if standby {
		r.write(backup, "standby.signal", "")
	}
	if err := r.server.Stop(); err != nil {
		r.Fatal(err)
	}
	// the directory itself has the lock of its server
	if out, err := exec.Command("sh", "-c", `rm -rf "$1" && mv "$2" "$1"`, "sh", r.data, backup).CombinedOutput(); err != nil {
		r.Fatalf("%v: %s", err, out)
	}
	r.startPostgres()
}

// spawn starts a worker.
func (r *run) spawn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	program, err := os.Executable()
	if err != nil {
		r.Fatal(err)
	}
	w := exec.Command(program)
	w.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", workerEnv, r.url(), r.redis.Addr(), r.broker.address))
	w.Stderr = lockedWriter{r}
	w.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := w.Start(); err != nil {
		r.Fatal(err)
	}
	r.workers = append(r.workers, w)
}

type lockedWriter struct{ r *run }

func (w lockedWriter) Write(text []byte) (int, error) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.r.log.Write(text)
}

func (r *run) kill(n int) {
	r.mu.Lock()
	w := r.workers[n]
	r.workers = append(r.workers[:n], r.workers[n+1:]...)
	r.mu.Unlock()
	_ = w.Process.Kill()
	_ = w.Wait()
}

func (r *run) killAll() {
	for len(r.workers) > 0 {
		r.kill(0)
	}
}

// deliver sends keys and disturbs until all are acknowledged.
func (r *run) deliver(keys []string, copies int) {
	r.Helper()
	r.broker.send(r.random, keys, copies)
	patience.Until(r, "all are acknowledged", func() bool {
		r.disturb()
		return r.broker.open() == 0
	})
	patience.Until(r, "no stored delivery is open", func() (none bool) {
		r.query("select not exists (select from pawl.job)", &none)
		return none
	})
}

// disturb does one thing to a worker or to Redis, and then leaves time for work.
func (r *run) disturb() {
	what := []string{"worker killed", "redis killed", "redis flushed", "redis frozen", "marks spoiled", "marks exchanged", "old marks put back", "nothing"}[r.random.IntN(8)]
	r.done[what]++
	ctx := r.Context()
	switch what {
	case "worker killed":
		r.kill(r.random.IntN(len(r.workers)))
		r.spawn()
	case "redis killed":
		r.redis.Kill()
		if err := r.redis.Start(ctx); err != nil {
			r.Fatal(err)
		}
	case "redis flushed":
		r.client.FlushAll(ctx)
	case "redis frozen":
		r.redis.Freeze()
		time.Sleep(100 * time.Millisecond)
		r.redis.Wake()
	case "marks spoiled":
		for key, mark := range r.marks() {
			octets := []byte(mark)
			octets[r.random.IntN(len(octets))] ^= 1 << r.random.IntN(8)
			r.client.Set(ctx, key, octets, time.Hour)
		}
	case "marks exchanged":
		before := ""
		for key, mark := range r.marks() {
			if before != "" {
				r.client.Set(ctx, key, before, time.Hour)
			}
			before = mark
		}
	case "old marks put back":
		r.putMarks()
	}
	time.Sleep(150 * time.Millisecond)
}

// marks returns all marks in Redis.
func (r *run) marks() map[string]string {
	found := map[string]string{}
	keys, err := r.client.Keys(r.Context(), "*").Result()
	if err != nil || len(keys) == 0 {
		return found
	}
	values, err := r.client.MGet(r.Context(), keys...).Result()
	if err != nil {
		return found
	}
	for n, value := range values {
		if text, ok := value.(string); ok && text != "" {
			found[keys[n]] = text
		}
	}
	return found
}

// keepMarks takes a snapshot of Redis that has the marks of all keys. They come again until it has.
func (r *run) keepMarks(keys []string) {
	r.Helper()
	patience.Until(r, "all keys have marks", func() bool {
		r.broker.send(r.random, keys, 1)
		patience.Until(r, "all are acknowledged", func() bool { return r.broker.open() == 0 })
		known := r.broker.count(pawl.EventDuplicateFiltered)
		r.broker.send(r.random, keys, 1)
		patience.Until(r, "all are acknowledged", func() bool { return r.broker.open() == 0 })
		time.Sleep(300 * time.Millisecond) // the workers' counts come each tenth of a second
		return r.broker.count(pawl.EventDuplicateFiltered)-known >= len(keys)
	})
	r.old = r.marks()
	r.done["snapshots of redis"]++
}

// putMarks puts the snapshot back.
func (r *run) putMarks() {
	p := r.client.Pipeline()
	for key, mark := range r.old {
		p.Set(r.Context(), key, mark, time.Hour)
	}
	_, _ = p.Exec(r.Context())
}

// wantEffects checks that each key took effect a number of times.
func (r *run) wantEffects(what string, keys []string, want int) {
	r.Helper()
	var least, most int
	r.query(fmt.Sprintf("select min(n), max(n) from (select count(e.key) as n from unnest('{%s}'::text[]) as k (key) left join effect as e on e.key = k.key group by k.key) as c",
		strings.Join(keys, ",")), &least, &most)
	if least != want || most != want {
		r.Fatalf("%s: keys took effect %d to %d times, want %d", what, least, most, want)
	}
}

func tailOf(text string) string { return text[max(0, len(text)-4000):] }
