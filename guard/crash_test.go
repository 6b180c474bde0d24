package guard_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/pawltest"
)

// childEnv holds an errand, as JSON, for a child process.
const childEnv = "PAWL_TEST_GUARD"

// An errand says how a child process works on row 1.
type errand struct {
	URL, Provider string
	Dies          string // where it kills itself: a fault point, or a point of twoPhases
}

// TestGuardProcess is the child process of other tests.
func TestGuardProcess(t *testing.T) {
	var e errand
	if text := os.Getenv(childEnv); text == "" {
		return
	} else if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	if err := fault.Arm(e.Dies + "=kill"); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), e.URL)
	if err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(t, pool, table)
	sweep(t, rows, guard.SweeperConfig{}, func(context.Context, string) error { return nil })
	t.Error(twoPhases(t.Context(), pool, rows, e.Provider, 1), "and the process lives")
}

// sweep starts a sweeper. stop stops it.
func sweep(t *testing.T, rows *guard.Rows, cfg guard.SweeperConfig, drive func(context.Context, string) error) (stop func()) {
	t.Helper()
	sweeper, err := rows.Sweeper(cfg, drive)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = sweeper.Run(ctx)
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	<-sweeper.Ready()
	return stop
}

// twoPhases claims a row, charges for it in a step, and ships it in the transaction that completes
// the row.
func twoPhases(ctx context.Context, pool *pgxpool.Pool, rows *guard.Rows, provider string, id any) error {
	c, err := rows.Claim(ctx, id)
	if err != nil {
		return err
	}
	if err := fault.At("test.claim.after"); err != nil {
		return err
	}
	if _, err := pay(ctx, pool, c, provider); err != nil {
		return c.Fail(ctx, err)
	}
	if err := fault.At("test.commit.before"); err != nil {
		return err
	}
	err = c.Commit(ctx, func(ctx context.Context, tx pgx.Tx) (any, error) {
		if err := fault.At("test.work.before"); err != nil {
			return nil, err
		}
		result, err := ship(id)(ctx, tx)
		return result, errors.Join(err, fault.At("test.work.after"))
	})
	if err == nil {
		err = fault.At("test.commit.after")
	}
	return err
}

// A process is killed at each point from the claim to the commit. The sweeper takes the row over,
// the next attempt completes it, and there are one charge and one shipment. If the commit was made,
// there is no second attempt.
func TestClaim_SIGKILLAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"test.claim.after", "step.plan.before", "step.plan.after", "step.call.before", "step.call.after", "step.record.after",
		"test.commit.before", "test.work.before", "test.work.after", "guard.commit.before", "test.commit.after"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			url := pawltest.URL(t, orders)
			pool, err := pgxpool.New(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			provider := pawltest.NewProvider(t, time.Hour, nil)
			kill(t, errand{URL: url, Provider: provider.URL, Dies: point})

			left, attempts := "processing", "2"
			if point == "test.commit.after" {
				left, attempts = "completed", "1"
			}
			wantText(t, pool, "select concat_ws(' ', status, attempt_count, (select count(*) from shipment)) from orders where id = 1",
				map[string]string{"processing": "processing 1 0", "completed": "completed 1 1"}[left])
			rows := rowsOf(t, pool, table)
			var e ears
			stop := sweep(t, rows, guard.SweeperConfig{Every: 10 * time.Millisecond, Hooks: e.hooks()}, func(ctx context.Context, id string) error {
				return twoPhases(ctx, pool, rows, provider.URL, id)
			})
			age(t, pool) // waits for the dead session's locks
			until(t, "the row is completed", func() bool {
				var status string
				err := pool.QueryRow(t.Context(), "select status from orders where id = 1").Scan(&status)
				return err == nil && status == "completed"
			})
			stop()
			wantText(t, pool, order1, "completed "+attempts+" shipped t 1")
			if n := len(provider.Charges()); n != 1 {
				t.Errorf("%d charges", n)
			}
			if left == "processing" {
				e.want(t, "stale_takeover guard.sweep orders  x1")
			} else {
				e.want(t)
			}
		})
	}
}

// kill runs a process until it has killed itself.
func kill(t *testing.T, e errand) {
	t.Helper()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGuardProcess$")
	c.Env = append(os.Environ(), childEnv+"="+string(text))
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	_ = c.Run()
	if s, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGKILL {
		t.Fatalf("it was not killed at %s: %s", e.Dies, out.String())
	}
}
