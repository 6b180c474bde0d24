package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/pawltest"
)

// The connection is cut at COMMIT 500 times, before it is sent or before its reply. Each command
// has one effect, and the caller and every retry get the right answer.
func TestOnce_LostCommitReplies(t *testing.T) {
	t.Parallel()
	const commands = 500
	direct := setup(t)
	proxy, through := wireproxy.Start(t, direct.url)
	b := setupOn(t, through)
	var committed, cut sync.Map // keys whose first COMMIT arrived or was cut
	var sent atomic.Int64
	proxy.OnCommit(func() wireproxy.Cut {
		switch sent.Add(1) % 4 {
		case 0:
			return wireproxy.BeforeSend
		case 1:
			return wireproxy.BeforeReply
		}
		return wireproxy.Pass
	})
	var all sync.WaitGroup
	queue := make(chan int)
	for range 8 {
		all.Go(func() {
			for n := range queue {
				key := fmt.Sprint(n)
				runs := 0
				ask := func() (command.Result[order], error) {
					return b.once(key, "p", func(ctx context.Context, tx pgx.Tx) (order, error) {
						runs++
						return place(key)(ctx, tx)
					})
				}
				r, err := ask()
				// Nine COMMITs in a row may be cut; then the caller retries.
				unsure := pawl.CodeOf(err) == pawl.CodeCommitUnknown
				for pawl.CodeOf(err) == pawl.CodeCommitUnknown {
					r, err = ask()
				}
				if err != nil || r.Value.Body != key || r.Replayed && !unsure {
					t.Errorf("%s: %+v after %d runs, %v", key, r, runs, err)
				}
				if runs > 1 {
					cut.Store(key, true)
				}
				committed.Store(key, r.Answer.Result)
			}
		})
	}
	n := 0
	for ; proxy.Cuts() < commands; n++ {
		queue <- n
	}
	close(queue)
	all.Wait()
	proxy.OnCommit(nil)
	direct.wantOrders(n)
	direct.want("select count(distinct body) from orders", n)
	for i := range n {
		key := fmt.Sprint(i)
		r, err := direct.once(key, "p", fails(errors.New("never entered")))
		direct.must(err)
		if stored, _ := committed.Load(key); !r.Replayed || !bytes.Equal(stored.([]byte), r.Answer.Result) {
			t.Errorf("%s: told %s, asked again %s", key, stored, r.Answer.Result)
		}
	}
	ranAgain := 0
	cut.Range(func(any, any) bool { ranAgain++; return true })
	t.Logf("%d commands, %d cuts at COMMIT, %d ran again, %d effects", n, proxy.Cuts(), ranAgain, n)
	if ranAgain == 0 || ranAgain == n {
		t.Error("only one of the two worlds was seen")
	}
}

// If the reply to a failure's COMMIT is lost, it is recorded once and the handler runs once.
func TestOnce_LostRepliesToFailures(t *testing.T) {
	t.Parallel()
	direct := setup(t)
	proxy, through := wireproxy.Start(t, direct.url)
	b := setupOn(t, through)
	for n := range 40 {
		fate := []wireproxy.Cut{wireproxy.BeforeSend, wireproxy.BeforeReply}[n%2]
		var once sync.Once
		proxy.OnCommit(func() (c wireproxy.Cut) {
			once.Do(func() { c = fate })
			return c
		})
		runs := 0
		_, err := b.once(fmt.Sprint(n), "p", func(ctx context.Context, tx pgx.Tx) (order, error) {
			runs++
			return fails(pawl.Final(errors.New("no stock")))(ctx, tx)
		})
		b.wantError(err, pawl.ErrFailedFinal)
		if runs != 1 {
			t.Errorf("%d runs", runs)
		}
	}
	direct.wantOrders(0)
	direct.want("select count(*) from pawl.command where status = 'failed_final' and attempts = 1", 40)
}

// In the leased form the reply is lost to the claim, the COMMIT, or an end without rows.
func TestLeased_LostReplies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		aim func([]byte) bool
		fn  func(context.Context, *command.Attempt[order]) error
	}{
		"claim":   {wireproxy.Executes("command_claim"), commitOrder},
		"commit":  {func(sent []byte) bool { return strings.Contains(string(sent), "commit\x00") }, commitOrder},
		"succeed": {wireproxy.Executes("command_succeed"), func(ctx context.Context, a *command.Attempt[order]) error { return a.Succeed(ctx, order{Body: "x"}) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := setup(t)
			proxy, through := wireproxy.Start(t, direct.url+separator(direct.url)+"default_query_exec_mode=cache_describe")
			b := setupOn(t, through)
			proxy.Aim(c.aim)
			random := rand.New(rand.NewPCG(1, 2))
			const commands = 60
			for n := range commands {
				var once sync.Once
				fate := []wireproxy.Cut{wireproxy.BeforeSend, wireproxy.BeforeReply}[random.IntN(2)]
				proxy.OnCommit(func() (c wireproxy.Cut) {
					once.Do(func() { c = fate })
					return c
				})
				r, err := command.Leased(t.Context(), b.pool, intent(fmt.Sprint(n), "p"), command.LeaseOptions{Hooks: b.hooks()}, c.fn)
				if err != nil || r.Replayed {
					t.Errorf("%+v, %v", r, err)
				}
			}
			if proxy.Cuts() < commands {
				t.Errorf("%d cuts", proxy.Cuts())
			}
			direct.want("select count(*) from pawl.command where status = 'succeeded' and attempts = 1", commands)
			if name != "succeed" {
				direct.wantOrders(commands)
			}
		})
	}
}

func separator(rawURL string) string {
	if u, err := url.Parse(rawURL); err == nil && u.RawQuery != "" {
		return "&"
	}
	return "?"
}

// If the database is unreachable, no handler runs (trap T10).
func TestT10_AwayMeansNoRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin, err := pgx.Connect(t.Context(), pgtest.ServerURL(t))
	b.must(err)
	defer admin.Close(context.Background())
	name := b.pool.Config().ConnConfig.Database
	b.must(pgtest.Shut(t.Context(), admin, name))
	for range 3 {
		_, err = b.once("k", "p", func(context.Context, pgx.Tx) (order, error) {
			t.Error("entered")
			return order{}, nil
		})
		if err == nil {
			t.Error("no error")
		}
	}
	_, err = command.Leased(t.Context(), b.pool, intent("k", "p"), command.LeaseOptions{}, func(context.Context, *command.Attempt[order]) error {
		t.Error("entered")
		return nil
	})
	if err == nil {
		t.Error("no error")
	}
	b.must(pgtest.Reopen(t.Context(), admin, name))
	b.pool.Reset()
	_, err = b.once("k", "p", place("one"))
	b.must(err)
	b.wantOrders(1)
}

// A read-only session, as on a standby, cannot claim, so the handler does not run (trap T11).
func TestT11_NoClaimOnAStandby(t *testing.T) {
	t.Parallel()
	b := setupOn(t, func() string {
		u := pawltest.URL(t, orders)
		return u + separator(u) + "default_transaction_read_only=on"
	}())
	_, err := b.once("k", "p", func(context.Context, pgx.Tx) (order, error) {
		t.Error("entered")
		return order{}, nil
	})
	if pawl.CodeOf(err) != "25006" {
		t.Errorf("got %v", err)
	}
}

// If the database goes away while the handler runs, no attempt is counted and no rows remain.
func TestOnce_OutageDuringTheHandler(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.once("k", "p", func(ctx context.Context, tx pgx.Tx) (order, error) {
		if _, err := place("lost")(ctx, tx); err != nil {
			return order{}, err
		}
		_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
		return order{}, err
	})
	if !pawl.Retryable(err) {
		t.Errorf("got %v", err)
	}
	b.wantStatus("")
	r, err := b.once("k", "p", place("one"))
	b.must(err)
	if r.Attempt != 1 {
		t.Errorf("attempt %d", r.Attempt)
	}
	b.wantOrders(1)
}

// If a caller leaves, its handler's rows are rolled back and the failure is recorded (trap T9).
func TestT9_ACallerWhoLeaves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, leave := context.WithCancel(t.Context())
	_, err := command.Once(ctx, b.pool, intent("k", "p"), b.options(), func(ctx context.Context, tx pgx.Tx) (order, error) {
		if _, err := place("lost")(ctx, tx); err != nil {
			return order{}, err
		}
		leave()
		_, err := tx.Exec(ctx, "select 1")
		return order{}, err
	})
	b.wantError(err, context.Canceled)
	b.wantStatus("failed_retryable 1")
	ctx, leave = context.WithCancel(t.Context())
	r, err := command.Once(ctx, b.pool, intent("k", "p"), b.options(), func(ctx context.Context, tx pgx.Tx) (order, error) {
		defer leave() // after the last statement, which is not undone
		return place("one")(ctx, tx)
	})
	if err == nil && r.Attempt != 2 {
		t.Errorf("attempt %d", r.Attempt)
	}
	r, err = b.once("k", "p", place("one"))
	b.must(err)
	b.wantOrders(1)
}
