//go:build proof

package hatest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/job"
)

// tables are the load's tables. No key is unique, so a second effect is a second row.
const tables = `create table orders (key text not null);
create table bookings (key text not null, attempt int not null, crashes int not null);
create table payments (key text not null);
create table beat (at timestamptz not null)`

const (
	sendEvery = 25 * time.Millisecond // between messages
	// callEvery is the pause between commands of one caller, and between attempts of one command.
	callEvery = 50 * time.Millisecond
	callLimit = 10 * time.Second // of one attempt
	callers   = 4
	parts     = 2 // pools, each with a consumer and a worker
)

// A load is two consumers and two workers on two pools, and four callers of commands. A message
// becomes an order and a job, and the job becomes a booking. A command becomes a payment. A probe
// records when the database accepts writes.
type load struct {
	*testing.T
	source   *source
	counters pawl.Counters
	url      string

	sending       sync.WaitGroup // the sender and the callers
	working       sync.WaitGroup // consumers, workers and the probe
	stopSending   context.CancelFunc
	stopWorking   context.CancelFunc
	pools         []*pgxpool.Pool
	mu            sync.Mutex
	answered      map[string]bool
	answeredAt    []time.Time
	writableAt    []time.Time // when the probe's commits succeeded
	beforeConnect func(context.Context, *pgx.ConnConfig) error
}

var loads atomic.Int32

// startLoad returns when messages, jobs and commands make progress. Each load of a cluster has its
// own keys.
func startLoad(c *cluster, beforeConnect func(context.Context, *pgx.ConnConfig) error) *load {
	c.Helper()
	l := &load{T: c.T, source: &source{name: fmt.Sprintf("%d/", loads.Add(1)), acked: map[string]bool{}}, url: c.url("app"), answered: map[string]bool{}, beforeConnect: beforeConnect}
	log, err := os.Create(filepath.Join(c.dir, "pawl.log"))
	if err != nil {
		c.Fatal(err)
	}
	hooks := pawl.Join(l.counters.Hooks(), pawl.LogTo(slog.New(slog.NewTextHandler(io.Writer(log), nil))))
	sending, stopSending := context.WithCancel(context.Background())
	working, stopWorking := context.WithCancel(context.Background())
	l.stopSending, l.stopWorking = stopSending, stopWorking
	c.Cleanup(func() {
		stopSending()
		stopWorking()
		l.sending.Wait()
		l.working.Wait()
		for _, pool := range l.pools {
			pool.Close()
		}
		_ = log.Close()
	})
	for i := range parts {
		l.work(working, l.pool(), hooks, i)
	}
	l.working.Go(func() { l.probe(working) })
	l.sending.Go(func() {
		for sending.Err() == nil {
			l.source.send()
			pace.Sleep(sending, sendEvery)
		}
	})
	for i := range callers {
		pool := l.pools[i%parts]
		l.sending.Go(func() { l.call(sending, pool, hooks, i) })
	}
	c.until("the load makes progress", func() bool {
		acks, answers := l.counts()
		return acks > 20 && answers > 20
	})
	return l
}

// pool returns a pool with exactly the settings that the guide advises.
func (l *load) pool() *pgxpool.Pool {
	l.Helper()
	config, err := pgxpool.ParseConfig(l.url)
	if err != nil {
		l.Fatal(err)
	}
	config.MaxConns, config.PingTimeout = 12, 3*time.Second
	config.BeforeConnect = l.beforeConnect
	pawl.Watch(config.ConnConfig, pawl.Watching{})
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		l.Fatal(err)
	}
	l.pools = append(l.pools, pool)
	return pool
}

func (l *load) work(ctx context.Context, pool *pgxpool.Pool, hooks pawl.Hooks, i int) {
	l.Helper()
	orders, err := consumer.New(pool, consumer.Config{Name: "orders", Source: l.source, Hooks: hooks, MaxConns: 6,
		Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
			if _, err := tx.Exec(ctx, "insert into orders (key) values ($1)", m.Key); err != nil {
				return err
			}
			_, err := job.Enqueue(ctx, tx, job.Request{Queue: "bookings", Kind: "book", Payload: []byte(m.Key)})
			return err
		})})
	if err != nil {
		l.Fatal(err)
	}
	bookings, err := job.NewWorker(pool, job.Config{Name: "bookings " + strconv.Itoa(i), Hooks: hooks, MaxConns: 4, Queues: []job.Queue{{Name: "bookings"}},
		Handlers: []job.Handler{job.HandleTx("book", func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error {
			_, err := tx.Exec(ctx, "insert into bookings (key, attempt, crashes) values ($1, $2, $3)", string(t.Payload), t.Attempt, t.Crashes)
			return err
		})}})
	if err != nil {
		l.Fatal(err)
	}
	for _, run := range []func(context.Context) error{orders.Run, bookings.Run} {
		l.working.Go(func() {
			if err := run(ctx); err != nil {
				l.Errorf("it did not start: %v", err)
			}
		})
	}
}

// call repeats a command until it is answered, and continues with the next.
func (l *load) call(ctx context.Context, pool *pgxpool.Pool, hooks pawl.Hooks, caller int) {
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("%sc%d-%d", l.source.name, caller, n)
		intent := pawl.Intent{Scope: "payments", Key: key, Fingerprint: pawl.FingerprintOf([]byte(key))}
		for {
			try, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
			_, err := command.Once(try, pool, intent, command.Options{Hooks: hooks}, func(ctx context.Context, tx pgx.Tx) (string, error) {
				_, err := tx.Exec(ctx, "insert into payments (key) values ($1)", key)
				return key, err
			})
			cancel()
			if err == nil {
				break
			}
			if l.broken(err) {
				return
			}
			time.Sleep(callEvery)
		}
		l.mu.Lock()
		l.answered[key] = true
		l.answeredAt = append(l.answeredAt, time.Now())
		l.mu.Unlock()
		pace.Sleep(ctx, callEvery)
	}
}

// broken reports whether a caller must give up because its error is final.
func (l *load) broken(err error) bool {
	if pawl.Classify(err).Retry != pawl.RetryNo {
		return false
	}
	l.Errorf("a command was refused for good: %v", err)
	return true
}

// probe repeatedly commits a row on its own connection.
func (l *load) probe(ctx context.Context) {
	var conn *pgx.Conn
	for ctx.Err() == nil {
		err := error(nil)
		if conn == nil {
			conn, err = l.connect(ctx)
		}
		try, cancel := context.WithTimeout(ctx, time.Second)
		if err == nil {
			_, err = conn.Exec(try, "insert into beat (at) values (clock_timestamp())")
		}
		cancel()
		if err != nil && conn != nil {
			closing, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			_ = conn.Close(closing)
			cancel()
			conn = nil
		}
		if err == nil {
			l.mu.Lock()
			l.writableAt = append(l.writableAt, time.Now())
			l.mu.Unlock()
		}
		pace.Sleep(ctx, 20*time.Millisecond)
	}
	if conn != nil {
		_ = conn.Close(context.Background())
	}
}

func (l *load) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(l.url)
	if err != nil {
		return nil, err
	}
	if l.beforeConnect != nil {
		if err := l.beforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	config.ConnectTimeout = time.Second // per node; not in the guide
	return pgx.ConnectConfig(ctx, config)
}

// goesOn waits for further acknowledgements, answers and commits of the probe.
func (l *load) goesOn(c *cluster) {
	c.Helper()
	acks, answers := l.counts()
	now := time.Now()
	c.until("the load makes progress again", func() bool {
		moreAcks, moreAnswers := l.counts()
		l.mu.Lock()
		defer l.mu.Unlock()
		return moreAcks > acks+callers && moreAnswers > answers+callers && len(l.writableAt) > 0 && l.writableAt[len(l.writableAt)-1].After(now)
	})
}

func (l *load) counts() (acks, answers int) {
	l.source.mu.Lock()
	acks = len(l.source.ackedAt)
	l.source.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return acks, len(l.answeredAt)
}
