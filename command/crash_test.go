package command_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
)

// A process is killed at each point of the one-transaction form, with and without an earlier
// failure. The retry has one effect, and later retries get its answer.
func TestOnce_KilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	for point, replayed := range map[string]bool{
		"command.claim.after": false, "command.handle.before": false, "command.handle.after": false,
		"command.commit.before": false, "command.commit.after": true,
	} {
		for _, form := range []string{"once", "sql"} {
			for attempt, name := range map[int]string{1: "fresh", 2: "after a failure"} {
				t.Run(form+", "+name+", "+point, func(t *testing.T) {
					t.Parallel()
					b := setup(t)
					if attempt > 1 {
						if _, err := b.once("k", "p", fails(errors.New("boom"))); err == nil {
							t.Fatal("no error")
						}
					}
					e := errand{Form: form, Faults: point + "=kill"}
					b.wantKilled(b.process(e))
					r, err := e.run(t.Context(), b.pool)
					b.must(err)
					if r.Replayed != replayed || r.Attempt != attempt {
						t.Errorf("%+v", r)
					}
					again, err := e.run(t.Context(), b.pool)
					b.must(err)
					if !again.Replayed || again.Value != r.Value || again.Fence != r.Fence {
						t.Errorf("%+v, then %+v", r, again)
					}
					b.wantOrders(1)
					b.wantStatus(fmt.Sprintf("succeeded %d", attempt))
				})
			}
		}
	}
}

// The connection is cut at each message between BEGIN and COMMIT, before it is sent or before its
// reply. Retries have one effect and one answer.
func TestOnce_CutAtEveryMessage(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"once", "sql"} {
		for _, attempt := range []int{1, 2} {
			for _, target := range []string{"command_open", "insert into orders", "command_close", "commit"} {
				for fate, when := range map[wireproxy.Cut]string{wireproxy.BeforeSend: "not sent", wireproxy.BeforeReply: "not answered"} {
					t.Run(fmt.Sprintf("%s, attempt %d, %s %s", form, attempt, target, when), func(t *testing.T) {
						t.Parallel()
						direct := setup(t)
						if attempt > 1 {
							if _, err := direct.once("k", "p", fails(errors.New("boom"))); err == nil {
								t.Fatal("no error")
							}
						}
						proxy, through := wireproxy.Start(t, direct.url+separator(direct.url)+"default_query_exec_mode=cache_describe")
						b := setupOn(t, through)
						var once sync.Once
						if target == "commit" {
							// The whole text, of either protocol.
							proxy.Aim(func(sent []byte) bool { return bytes.Contains(sent, []byte("commit\x00")) })
						} else {
							proxy.Aim(wireproxy.Executes(target))
						}
						proxy.OnCommit(func() (c wireproxy.Cut) {
							once.Do(func() { c = fate })
							return c
						})
						var r command.Result[order]
						err := errors.New("not asked")
						for asked := 0; err != nil && asked < 5; asked++ {
							r, err = errand{Form: form}.run(t.Context(), b.pool)
						}
						b.must(err)
						again, err := errand{Form: form}.run(t.Context(), direct.pool)
						b.must(err)
						if proxy.Cuts() != 1 || !again.Replayed || again.Value != r.Value || again.Fence != r.Fence || again.Attempt != r.Attempt {
							t.Errorf("%d cuts: %+v, then %+v", proxy.Cuts(), r, again)
						}
						direct.wantOrders(1)
						direct.want("select count(*) from pawl.command where status = 'succeeded'", 1)
					})
				}
			}
		}
	}
}

// A process is killed at each point of the leased form. Only a repeatable command runs again, even
// if the kill comes between the handler's own commit and the end.
func TestLeased_KilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	const unknown, replay, again = "unknown", "replay", "again"
	for _, c := range []struct {
		form, point string
		repeatable  bool
		then        string
		orders      int
	}{
		{"commit", "command.begin.after", false, unknown, 0},
		{"commit", "command.work.before", false, unknown, 0},
		{"commit", "command.hold.before", false, unknown, 0},
		{"commit", "command.commit.before", false, unknown, 0},
		{"commit", "command.commit.after", false, replay, 1},
		{"commit", "command.work.after", false, replay, 1},
		{"commit", "command.begin.after", true, again, 1},
		{"commit", "command.work.before", true, again, 1},
		{"commit", "command.hold.before", true, again, 1},
		{"commit", "command.commit.before", true, again, 1},
		{"commit", "command.commit.after", true, replay, 1},
		{"commit", "command.work.after", true, replay, 1},
		{"outside", "command.work.before", false, unknown, 0},
		{"outside", "command.work.after", false, unknown, 1},
		{"outside", "command.succeed.before", false, unknown, 1},
		{"outside", "command.succeed.after", false, replay, 1},
	} {
		name := c.form + " " + c.point
		if c.repeatable {
			name += ", repeatable"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			e := errand{Form: c.form, Lease: command.LeaseOptions{Repeatable: c.repeatable}, Faults: c.point + "=kill"}
			b.wantKilled(b.process(e))
			b.until("select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'", 0)
			e.Lease.Wait = -1
			if c.then != replay {
				_, err := e.run(t.Context(), b.pool)
				b.wantError(err, pawl.ErrInProgress) // until the lease expires
			}
			b.exec(expire)
			r, err := e.run(t.Context(), b.pool)
			switch {
			case c.then == unknown && !errors.Is(err, pawl.ErrOutcomeUnknown),
				c.then == replay && (err != nil || !r.Replayed),
				c.then == again && (err != nil || r.Replayed || r.Attempt != 2):
				t.Errorf("%+v, %v", r, err)
			}
			b.wantOrders(c.orders)
		})
	}
}

func (b *bed) wantKilled(p *child) {
	b.Helper()
	if line := p.end(); line != "" {
		b.Fatalf("the process lived on: %s", line)
	}
}

// A process that froze past its lease is refused when it wakes, and leaves no rows.
func TestZombie_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := errand{Form: "commit", Lease: command.LeaseOptions{Repeatable: true}}
	frozen := e
	frozen.Faults = "command.hold.before=stop"
	zombie := b.process(frozen)
	zombie.untilStopped()
	b.exec(expire)
	r, err := e.run(t.Context(), b.pool)
	b.must(err)
	if r.Attempt != 2 {
		t.Errorf("%+v", r)
	}
	zombie.wake()
	if line := zombie.end(); !strings.Contains(line, "P4020") {
		t.Errorf("the zombie %s", line)
	}
	b.wantOrders(1)
	b.wantStatus("succeeded 2")
}

// A process that froze with an open transaction has locked the row, even if its lease expires. No
// other process takes over, and the process ends the command when it wakes.
func TestZombie_OpenTransactionKeepsItsCommand(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"once", "commit"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			e := errand{Form: form, Lease: command.LeaseOptions{Lease: time.Second, Repeatable: true, Wait: -1}}
			frozen := e
			frozen.Faults = "command.commit.before=stop"
			zombie := b.process(frozen)
			zombie.untilStopped()
			fast := b.options()
			fast.Wait = -1
			_, err := command.Once(t.Context(), b.pool, intent("k", "p"), fast, place("never"))
			b.wantError(err, pawl.ErrInProgress)
			if form == "commit" {
				b.until("select count(*) from pawl.command where lease_expires_at < clock_timestamp()", 1)
				_, err = e.run(t.Context(), b.pool)
				b.wantError(err, pawl.ErrInProgress)
			}
			zombie.wake()
			if line := zombie.end(); line != "ended replayed=false error=<nil>" {
				t.Errorf("the process %s", line)
			}
			r, err := e.run(t.Context(), b.pool)
			b.must(err)
			if !r.Replayed {
				t.Errorf("%+v", r)
			}
			b.wantOrders(1)
		})
	}
}
