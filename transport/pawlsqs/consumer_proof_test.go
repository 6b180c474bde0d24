//go:build proof

package pawlsqs_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

// consumerEnv holds an assignment, as JSON, for a consumer process.
const consumerEnv = "PAWL_TEST_CONSUMER"

// An assignment configures a consumer process.
type assignment struct {
	URL        string // of the database
	Endpoint   string
	Queue      string
	Mode       string        // of the consumer; see modes
	Faults     string        // where the process kills itself
	Failures   float64       // share of first attempts that fail and are stored
	Take       time.Duration // how long a handler takes
	Visibility time.Duration // how long messages of a killed process stay hidden
}

// A mode is one way to run a consumer.
type mode struct {
	set    func(a assignment, pool *pgxpool.Pool, cfg *consumer.Config) error
	points []string // crash points of its processes
}

var (
	inlinePoints = []string{"consumer.claim.after", "consumer.handle.before", "consumer.handle.after", "consumer.commit.before", "consumer.commit.after", "consumer.ack.before"}

	modes = map[string]mode{
		"inline": {func(a assignment, _ *pgxpool.Pool, cfg *consumer.Config) error {
			cfg.Handler = consumer.HandleTx(a.handle).With(consumer.TxPolicy{Policy: soakPolicy})
			return nil
		}, inlinePoints},
		"store": {func(a assignment, _ *pgxpool.Pool, cfg *consumer.Config) error {
			cfg.Handler = consumer.HandleTx(a.handle).With(consumer.TxPolicy{Policy: soakPolicy, Mode: consumer.StoreFirst})
			return nil
		}, []string{"consumer.claim.after", "consumer.ack.before", "job.hold.before", "job.handle.before", "job.commit.before", "job.commit.after"}},
		"batch": {func(a assignment, _ *pgxpool.Pool, cfg *consumer.Config) error {
			cfg.Concurrency = 2
			cfg.Handler = consumer.HandleManyTx(func(ctx context.Context, tx pgx.Tx, ms []consumer.Message[unit]) error {
				for _, m := range ms {
					if err := a.handle(ctx, tx, m); err != nil {
						return err
					}
				}
				return nil
			}).With(consumer.ManyTxPolicy{Policy: soakPolicy})
			return nil
		}, inlinePoints},
		"trigger": {assignment.trigger, []string{"guard.work.before", "guard.commit.before", "consumer.ack.before"}},
	}
)

// soakPolicy never isolates a suspect, because kills and lost responses make good messages look
// suspect. Isolation is tested in package consumer.
var soakPolicy = consumer.Policy{Lease: 2 * time.Second, Backoff: job.Backoff{Base: 20 * time.Millisecond, Max: 200 * time.Millisecond}, SoloAfter: 1000}

// effects has no unique key, so that a second effect shows. task has the rows that messages of
// triggers name.
const effects = `
create table effect (id bigint generated always as identity, key text not null, line text not null, number int not null);
create table task (key text primary key, status text not null default 'pending', claimed_at timestamptz, completed_at timestamptz,
  last_error text, attempt_count int not null default 0)`

// A unit is the body of a message: the number-th of its line.
type unit struct {
	Line   string
	Number int
}

func (u unit) key() string { return fmt.Sprintf("%s-%d", u.Line, u.Number) }

func lineOf(key string) (line string, number int) {
	at := strings.LastIndexByte(key, '-')
	number, _ = strconv.Atoi(key[at+1:])
	return key[:at], number
}

func (u unit) body() []byte {
	body, _ := json.Marshal(u) // a string and a number cannot fail
	return body
}

// TestConsumerProcess is not a test of its own. Other tests start it as a consumer process, and
// kill it. It prints a line when it has started and ends at SIGTERM, as in a deploy.
func TestConsumerProcess(t *testing.T) {
	var a assignment
	if text := os.Getenv(consumerEnv); text == "" {
		return // not started by another test
	} else if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := a.consume(ctx); err != nil {
		t.Fatal(err)
	}
}

func (a assignment) consume(ctx context.Context) error {
	if a.Faults != "" {
		if err := fault.Arm(a.Faults); err != nil {
			return err
		}
	}
	config, err := pgxpool.ParseConfig(a.URL)
	if err != nil {
		return err
	}
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	source, err := pawlsqs.Open(ctx, newClient(nil, a.Endpoint), a.Queue, pawlsqs.Config{Visibility: a.Visibility, Wait: consumerWait})
	if err != nil {
		return err
	}
	cfg := consumer.Config{Name: "soak", Source: source, Concurrency: 5, RetryConcurrency: 1,
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			if e.Kind == pawl.EventError {
				fmt.Fprintln(os.Stderr, e.Op, e.Err)
			}
		}}}
	if err := modes[a.Mode].set(a, pool, &cfg); err != nil {
		return err
	}
	f, err := consumer.New(pool, cfg)
	if err != nil {
		return err
	}
	fmt.Println("begun")
	return f.Run(ctx)
}

const consumerWait = 2 * time.Second

func (a assignment) handle(ctx context.Context, tx pgx.Tx, m consumer.Message[unit]) error {
	// A stored delivery has no handle, and Receives is the number of its attempt.
	return a.apply(ctx, tx, m.Value, m.Handle != nil || m.Receives == 1)
}

func (a assignment) apply(ctx context.Context, tx pgx.Tx, u unit, first bool) error {
	if _, err := tx.Exec(ctx, "insert into effect (key, line, number) values ($1, $2, $3)", u.key(), u.Line, u.Number); err != nil {
		return err
	}
	time.Sleep(a.Take)
	if first && a.unlucky(u.key()) {
		return errors.New("not now")
	}
	return nil
}

// trigger guards the row of table task that a message names. Sweepers retry rows of failed attempts
// and of killed processes.
func (a assignment) trigger(pool *pgxpool.Pool, cfg *consumer.Config) error {
	rows, err := guard.New(pool, guard.Table{Name: "task", ID: "key"})
	if err != nil {
		return err
	}
	once := func(ctx context.Context, key string) error {
		var u unit
		u.Line, u.Number = lineOf(key)
		return rows.Once(ctx, key, func(ctx context.Context, tx pgx.Tx) (any, error) {
			var attempt int
			if err := tx.QueryRow(ctx, "select t.attempt_count from task as t where t.key = $1", key).Scan(&attempt); err != nil {
				return nil, err
			}
			return nil, a.apply(ctx, tx, u, attempt == 1)
		})
	}
	sweeper, err := rows.Sweeper(guard.SweeperConfig{Every: 100 * time.Millisecond, Wait: 20 * time.Millisecond, PendingAfter: 2 * time.Second}, once)
	if err != nil {
		return err
	}
	go sweeper.Run(context.Background()) // until the process ends
	cfg.Handler = consumer.Trigger(func(ctx context.Context, m consumer.Message[[]byte]) error { return once(ctx, m.Key) })
	return nil
}

// unlucky decides by the key alone which deliveries fail at first.
func (a assignment) unlucky(key string) bool {
	h := fnv.New32a()
	h.Write([]byte(key))
	return float64(h.Sum32()%10_000)/10_000 < a.Failures
}

// A process is a running consumer.
type process struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	begun  chan struct{}
	ended  chan struct{}
	doomed bool // it will kill itself
}

func startConsumer(t *testing.T, a assignment) *process {
	t.Helper()
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	c := &process{cmd: exec.Command(os.Args[0], "-test.run", "^TestConsumerProcess$", "-test.timeout", "3h"), stderr: &bytes.Buffer{},
		begun: make(chan struct{}), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), consumerEnv+"="+string(text))
	c.cmd.Stderr = c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if lines.Text() == "begun" {
				close(c.begun)
			}
		}
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
	return c
}

// lives fails the test if the process has ended unexpectedly.
func (c *process) lives(t *testing.T) {
	t.Helper()
	select {
	case <-c.ended:
		t.Fatalf("a consumer ended by itself: %v\n%s", c.cmd.ProcessState, c.stderr)
	default:
	}
}

// await waits until the process consumes.
func (c *process) await(t *testing.T) {
	t.Helper()
	select {
	case <-c.begun:
	case <-c.ended:
		select {
		case <-c.begun: // it began, and has ended since
		default:
			t.Fatalf("the consumer did not begin: %v\n%s", c.cmd.ProcessState, c.stderr)
		}
	case <-time.After(time.Minute):
		t.Fatal("the consumer did not begin within a minute")
	}
}

// terminate sends SIGTERM and returns the time until the process exited without error.
func (c *process) terminate(t *testing.T) time.Duration {
	t.Helper()
	start := time.Now()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		t.Fatal("still running a minute after SIGTERM")
	}
	if !c.cmd.ProcessState.Success() {
		t.Fatalf("%v\n%s", c.cmd.ProcessState, c.stderr)
	}
	return time.Since(start)
}
