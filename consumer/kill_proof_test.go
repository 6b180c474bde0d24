//go:build proof

package consumer_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

// Environment of a child process: the database, the form of its handler, and where it dies.
const (
	childURL   = "PAWL_CONSUMER_CHILD_URL"
	childForm  = "PAWL_CONSUMER_CHILD_FORM"
	childFault = "PAWL_CONSUMER_CHILD_FAULT"

	childProvider = "PAWL_CONSUMER_CHILD_PROVIDER" // of form "calls"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		fmt.Fprintln(os.Stderr, consumeAsChild(url))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// consumeAsChild consumes until it is killed. The first try of every seventh message fails.
func consumeAsChild(url string) error {
	if err := fault.Arm(os.Getenv(childFault)); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return err
	}
	f, err := consumer.New(pool, childConfig(pool, os.Getenv(childForm), os.Getenv(childProvider)))
	if err != nil {
		return err
	}
	return f.Run(context.Background())
}

const childMessages = 60

// announced is the form "calls" for messages announced under two keys.
const announced = "announced calls"

// childConfig is the same in every process: the same messages, which take effect in one table.
func childConfig(pool *pgxpool.Pool, kind, provider string) consumer.Config {
	// a killed child's messages return soon
	source := &pawltest.Source{Invisibility: 3 * time.Second}
	for n := range childMessages {
		if kind == "gate" || kind == "sql gate" {
			n = childMessages - 1 - n // the last number first
		}
		d := ordered(fmt.Sprintf("lane %d", n%4), n/4)
		if strings.HasSuffix(kind, "batch") || strings.HasSuffix(kind, "gate") || kind == announced {
			d.OrderingKey, d.Attributes = "", map[string]string{"lane": d.OrderingKey}
		}
		if kind == announced {
			d.SemanticKey = "semantic " + d.Key
			other := d
			other.Key = "other " + d.Key
			source.Send(other)
		}
		source.Send(d, d)
	}
	write := func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		lane := d.OrderingKey + d.Attributes["lane"]
		_, err := tx.Exec(ctx, "insert into ran (lane, seq) values ($1, $2::int)", lane, string(d.Payload))
		if err == nil && d.Handle != nil && strings.HasSuffix(d.Key, "7") {
			err = errors.New("not the first time")
		}
		return err
	}
	writeSQL := func(ctx context.Context, tx *sql.Tx, d pawl.Delivery) error {
		_, err := tx.ExecContext(ctx, "insert into ran (lane, seq) values ($1, $2::int)", d.OrderingKey+d.Attributes["lane"], string(d.Payload))
		if err == nil && d.Handle != nil && strings.HasSuffix(d.Key, "7") {
			err = errors.New("not the first time")
		}
		return err
	}
	c := &form{TxPolicy: consumer.TxPolicy{Policy: impatient}}
	switch kind {
	case "inline":
		c.handle = write
	case "sql", "sql store":
		c.sql = writeSQL
		if kind == "sql store" {
			c.Mode = consumer.StoreFirst
		}
	case "sql batch":
		c.batchSize = 20
		c.manySQL = func(ctx context.Context, tx *sql.Tx, ds []pawl.Delivery) error {
			for _, d := range ds {
				if err := writeSQL(ctx, tx, d); err != nil {
					return err
				}
			}
			return nil
		}
	case "gate", "sql gate":
		first := int64(0)
		c.handle = write
		if kind == "sql gate" {
			c.sql = writeSQL
		}
		c.SequenceGate = &consumer.SequenceGate{Mode: consumer.GateStrict, First: &first, HoldTimeout: time.Hour, Of: func(d pawl.Delivery) (lane string, seq int64, err error) {
			_, err = fmt.Sscan(string(d.Payload), &seq)
			return d.Attributes["lane"], seq, err
		}}
	case "store":
		c.handle, c.Mode = write, consumer.StoreFirst
	case "batch":
		c.batchSize = 20
		c.many = func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
			for _, d := range ds {
				if err := write(ctx, tx, d); err != nil {
					return err
				}
			}
			return nil
		}
	case "long":
		c.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
			return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return write(ctx, tx, a.Delivery) })
		}
	case "calls", announced:
		c.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
			if _, err := charge(ctx, pool, a, provider, stepOf("charge", strings.TrimPrefix(a.Key, "other "), step.Keyed(time.Hour))); err != nil {
				return err
			}
			return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return write(ctx, tx, a.Delivery) })
		}
	}
	return consumer.Config{Name: "orders", Source: source, Handler: c.handler()}
}

// A process is killed at every point, in every form. Its successor gets the same messages, and each
// takes effect once, ordered ones in order.
func TestConsumer_KilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	early := []string{"consumer.claim.after", "consumer.handle.before", "consumer.handle.after", "consumer.commit.before", "consumer.commit.after", "consumer.ack.before"}
	jobs := []string{"job.hold.before", "job.handle.before", "job.commit.before", "job.commit.after"}
	for form, points := range map[string][]string{
		"inline": slices.Concat(early, jobs), "gate": slices.Concat(early, jobs), "batch": early,
		"sql": slices.Concat(early, jobs), "sql gate": slices.Concat(early, jobs), "sql batch": early, "sql store": jobs,
		"store":   slices.Concat([]string{"consumer.claim.after", "consumer.ack.before"}, jobs),
		"long":    {"consumer.claim.after", "consumer.ack.before", "job.handle.before", "attempt.commit.before"},
		announced: {"consumer.claim.after", "step.plan.after", "step.call.after", "attempt.commit.before"},
		"calls":   {"step.plan.before", "step.plan.after", "step.call.before", "step.call.after", "step.record.after", "attempt.commit.before"},
	} {
		for _, point := range points {
			t.Run(form+" "+point, func(t *testing.T) {
				t.Parallel()
				b := setupOn(t, pawltest.URL(t, ran))
				provider := pawltest.NewProvider(t, time.Hour, nil)
				killChild(t, b.pool.Config().ConnString(), form, point+"=kill@2", childProvider+"="+provider.URL)
				hooks := b.config.Hooks
				b.config = childConfig(b.pool, form, provider.URL)
				b.config.Hooks = hooks
				b.source = b.config.Source.(*pawltest.Source)
				b.start()
				b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
				b.until("all retries ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
				if n := len(provider.Charges()); strings.HasSuffix(form, "calls") && n != childMessages {
					t.Errorf("%d charges for %d deliveries", n, childMessages)
				}
				if strings.HasSuffix(form, "batch") || form == announced {
					if n, twice := b.count("select count(*) from ran"), b.count("select count(*) from (select from ran group by lane, seq having count(*) > 1) as d"); n != childMessages || twice != 0 {
						t.Errorf("%d ran, %d of them twice", n, twice)
					}
					return
				}
				b.wantOrder(4, childMessages/4)
			})
		}
	}
}

// killChild runs a child until its fault has killed it.
func killChild(t *testing.T, url, form, fault string, more ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0])
	child.Env = append(os.Environ(), childURL+"="+url, childForm+"="+form, childFault+"="+fault)
	child.Env = append(child.Env, more...)
	var said bytes.Buffer
	child.Stderr = &said
	err := child.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || ctx.Err() != nil {
		t.Fatalf("the child ended with %v: %.2000s", err, said.String())
	}
}
