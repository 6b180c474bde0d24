package step_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

// A recorded step is not called again by any attempt.
func TestRun_ReplaysWhatWasRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	j := b.claim()
	first, err := b.pay(j, b.step(step.Keyed(time.Hour)))
	b.must(err)
	again, err := b.pay(b.reclaim(j.ID), b.step(step.AtMostOnce()))
	b.must(err)
	if first != again || b.provider.Requests() != 1 || b.counters.Count(pawl.EventReplay) != 1 {
		t.Errorf("%+v, then %+v, in %d requests", first, again, b.provider.Requests())
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(first.Key) {
		t.Errorf("key %q", first.Key)
	}
	var reference string
	b.must(b.pool.QueryRow(t.Context(), "select reference from pawl.step").Scan(&reference))
	if reference != first.ID {
		t.Errorf("reference %q", reference)
	}
}

func TestRun_EventsNameStepAndProvider(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	j := b.claim()
	var told []pawl.Event
	s := b.step(step.Keyed(time.Hour))
	s.Provider, s.Hooks = "bank", pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) { told = append(told, e) }}
	_, err := b.pay(j, s)
	b.must(err)
	_, err = b.pay(b.reclaim(j.ID), s)
	b.must(err)
	if len(told) != 2 {
		t.Errorf("%d events, want one of the call and one of the replay", len(told))
	}
	for _, e := range told {
		if e.Step != "charge" || e.Provider != "bank" || e.JobID != j.ID {
			t.Errorf("%s %s names step %q, provider %q and job %d", e.Kind, e.Op, e.Step, e.Provider, e.JobID)
		}
	}
}

// A call whose reply is lost, in any way, is one charge under Keyed and Checked.
func TestT32_AnAmbiguousTimeoutIsNoFailure(t *testing.T) {
	t.Parallel()
	for _, lie := range []pawltest.Lie{pawltest.TimeOutBefore, pawltest.TimeOutAfter, pawltest.CutBefore, pawltest.CutAfter,
		pawltest.FailBefore, pawltest.FailAfter, pawltest.Conflict} {
		for _, name := range []string{"keyed", "checked"} {
			t.Run(name+", "+string(lie), func(t *testing.T) {
				t.Parallel()
				b := setup(t, time.Hour, lies(lie))
				policy := step.Keyed(time.Hour)
				if name == "checked" {
					policy = step.Checked(b.found("100 EUR"), 50*time.Millisecond)
				}
				j := b.claim()
				first := b.step(policy)
				if lie == pawltest.TimeOutBefore || lie == pawltest.TimeOutAfter {
					// The provider has the request by then, even on a busy machine.
					first.Timeout = 5 * time.Second
				}
				if _, err := b.pay(j, first); err == nil || pawl.IsFinal(err) || errors.Is(err, pawl.ErrOutcomeUnknown) {
					t.Errorf("the first attempt: %v", err)
				}
				b.wantStatus("planned")
				c, err := b.pay(b.reclaim(j.ID), b.step(policy))
				b.must(err)
				b.wantCharges(1)
				b.wantStatus("succeeded")
				if c != b.provider.Charges()[0] {
					t.Errorf("%+v, want %+v", c, b.provider.Charges()[0])
				}
			})
		}
	}
}

// AtMostOnce: a step with unknown outcome is not called again, and every attempt gets the error.
func TestAtMostOnce_DoubtsAreUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, lies(pawltest.TimeOutAfter))
	j := b.claim()
	s := b.step(step.AtMostOnce())
	s.Timeout = 5 * time.Second // the provider has it by then
	for range 2 {
		if _, err := b.pay(j, s); !errors.Is(err, pawl.ErrOutcomeUnknown) {
			t.Errorf("%v", err)
		}
		j = b.reclaim(j.ID)
	}
	b.wantCharges(1)
	b.wantStatus("unknown")
}

// A call that was certainly not sent leaves no doubt under any policy.
func TestAtMostOnce_NotSentIsNoDoubt(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, lies(pawltest.Conflict))
	away := b.provider.URL
	b.provider.URL = "http://127.0.0.1:1" // a closed port
	j := b.claim()
	_, err := b.pay(j, b.step(step.AtMostOnce()))
	if err == nil || errors.Is(err, pawl.ErrOutcomeUnknown) {
		t.Errorf("a connection that was never made: %v", err)
	}
	b.provider.URL = away
	if _, err := b.pay(j, b.step(step.AtMostOnce())); err == nil || errors.Is(err, pawl.ErrOutcomeUnknown) {
		t.Errorf("a 409: %v", err)
	}
	_, err = b.pay(j, b.step(step.AtMostOnce()))
	b.must(err)
	b.wantCharges(1)
}

// After the provider's memory has ended, nothing is sent until the step is settled (trap T31).
func TestT31_NothingIsSentPastTheProvidersMemory(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, lies(pawltest.CutAfter))
	j := b.claim()
	charge := b.step(step.Keyed(10 * time.Minute))
	_, err := b.pay(j, charge)
	if err == nil {
		t.Fatal("the answer was not lost")
	}
	if n := b.count("select count(*) from pawl.step as s where s.memory_ends_at between now() + interval '7 minutes' and now() + interval '9 minutes'"); n != 1 {
		t.Error("the last tenth of the memory is used")
	}
	_, err = b.pool.Exec(t.Context(), "update pawl.step set memory_ends_at = now()")
	b.must(err)
	if _, err := b.pay(b.reclaim(j.ID), charge); !errors.Is(err, pawl.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	b.wantCharges(1)
	if n := b.provider.Requests(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// A refusal is stored, final, and the same at every attempt.
func TestRun_Refused(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	j := b.claim()
	for range 2 {
		_, err := step.Run(t.Context(), b.pool, j, b.step(step.AtMostOnce()), func(context.Context, step.Call) (string, error) {
			return "", step.Refused("card_declined", "no money")
		})
		var refusal *step.Refusal
		if !pawl.IsFinal(err) || !errors.As(err, &refusal) || *refusal != (step.Refusal{Code: "card_declined", Message: "no money"}) {
			t.Errorf("%v", err)
		}
		j = b.reclaim(j.ID)
	}
	b.wantStatus("failed_final")
}

// Another request under the same step is refused before anything is sent.
func TestRun_AnotherRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	j := b.claim()
	_, err := b.pay(j, b.step(step.Keyed(time.Hour)))
	b.must(err)
	s := b.step(step.Keyed(time.Hour))
	s.Request = "200 EUR"
	if _, err := b.pay(j, s); !errors.Is(err, pawl.ErrKeyReused) {
		t.Errorf("%v", err)
	}
}

// An attempt that no longer owns the job is refused before it calls. If it lost the job during its
// call, the result is still accepted, because the provider executed it.
func TestRun_Zombies(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	zombie := b.claim()
	successor := job.Job{}
	_, err := step.Run(t.Context(), b.pool, zombie, b.step(step.AtMostOnce()), func(ctx context.Context, c step.Call) (pawltest.Charge, error) {
		successor = b.reclaim(zombie.ID)
		if _, err := b.pay(successor, b.step(step.AtMostOnce())); !errors.Is(err, pawl.ErrOutcomeUnknown) {
			t.Errorf("the successor: %v", err)
		}
		b.wantStatus("unknown")
		return b.charge(ctx, "100 EUR")
	})
	b.must(err)
	b.wantStatus("succeeded")
	c, err := b.pay(successor, b.step(step.AtMostOnce()))
	b.must(err)
	b.wantCharges(1)
	if c != b.provider.Charges()[0] {
		t.Errorf("%+v", c)
	}
	s := b.step(step.AtMostOnce())
	s.Name = "another"
	if _, err := b.pay(zombie, s); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("the zombie's next step: %v", err)
	}
	b.wantCharges(1)
}

// Under Checked, a stale attempt that calls late causes a second charge, which is reported.
func TestChecked_TheZombieThatCallsLateIsSeen(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	zombie := b.claim()
	s := b.step(step.Checked(b.found("100 EUR"), time.Millisecond))
	_, err := step.Run(t.Context(), b.pool, zombie, s, func(context.Context, step.Call) (pawltest.Charge, error) {
		// Waits until nothing can be sent any more.
		if _, err := b.pay(b.reclaim(zombie.ID), s); err != nil {
			t.Errorf("the successor: %v", err)
		}
		// It was frozen between the check and the write.
		return charge(context.Background(), http.DefaultClient, b.provider.URL, "100 EUR")
	})
	if !errors.Is(err, pawl.ErrFenceLost) { // the successor's result stands
		t.Errorf("the zombie: %v", err)
	}
	b.wantCharges(2)
	b.wantStatus("succeeded")
	if n := b.counters.Count(pawl.EventStepTwice); n != 1 {
		t.Errorf("reported %d times", n)
	}
}

// A refusal by status says nothing about an earlier call. A refusal of the key does.
func TestRefused_OfARepeatedCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy step.Recovery
		answer error
		status string
	}{
		{step.Keyed(time.Hour), step.HTTPStatus(400, "no such account"), "planned"},
		{step.Keyed(time.Hour), step.HTTPStatus(401, "the password has expired"), "planned"},
		{step.Keyed(time.Hour), step.Refused("card_declined", "no money"), "failed_final"},
		{step.Repeatable(), step.Refused("gone", "it is not there"), "unknown"},
		{step.AcceptDuplicates(), step.Refused("gone", "it is not there"), "unknown"},
	} {
		b := setup(t, time.Hour, lies(pawltest.CutAfter))
		j := b.claim()
		if _, err := b.pay(j, b.step(c.policy)); err == nil {
			t.Error("the answer was not lost")
		}
		_, err := step.Run(t.Context(), b.pool, b.reclaim(j.ID), b.step(c.policy), func(_ context.Context, call step.Call) (pawltest.Charge, error) {
			_ = call.Key() // as a client that sends it
			return pawltest.Charge{}, c.answer
		})
		if pawl.IsFinal(err) != (c.status == "failed_final") || errors.Is(err, pawl.ErrOutcomeUnknown) != (c.status == "unknown") {
			t.Errorf("%v, %v: %v", c.policy, c.answer, err)
		}
		b.wantStatus(c.status)
		want := int64(0)
		if fmt.Sprint(c.policy) == fmt.Sprint(step.AcceptDuplicates()) {
			want = 1
		}
		if n := b.counters.Count(pawl.EventStepRepeated); n != want {
			t.Errorf("%v: told %d times of a call that may be the second, want %d", c.policy, n, want)
		}
	}
}

// A result that cannot be stored cannot be replayed, so the call counts as ambiguous.
func TestRun_AResultTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	_, err := step.Run(t.Context(), b.pool, b.claim(), b.step(step.AtMostOnce()), func(context.Context, step.Call) ([]byte, error) {
		return make([]byte, 4<<20+1), nil
	})
	if !errors.Is(err, pawl.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "4194305 octets") {
		t.Errorf("%v", err)
	}
}

// References are cut or cleaned so that they can be stored.
func TestRun_OddReferences(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	_, err := step.Run(t.Context(), b.pool, b.claim(), b.step(step.AtMostOnce()), func(_ context.Context, c step.Call) (int, error) {
		c.Reference("a\x00b\xff" + strings.Repeat("é", 200))
		return 1, nil
	})
	b.must(err)
	if n := b.count("select octet_length(e.reference) from pawl.step as e"); n > 255 || n < 250 {
		t.Errorf("%d octets", n)
	}
}

// In a leased command, the next attempt finds the result of the step.
func TestRun_InALeasedCommand(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	intent := pawl.Intent{Scope: "orders", Key: "1", Fingerprint: pawl.FingerprintOf([]byte("100 EUR"))}
	options := command.LeaseOptions{Repeatable: true, Lease: 2 * time.Second}
	begin := func() *command.Attempt[string] {
		a, _, err := command.Begin[string](t.Context(), b.pool, intent, options)
		b.must(err)
		if a == nil {
			t.Fatal("it has ended")
		}
		t.Cleanup(a.Close)
		return a
	}
	first := begin()
	charged, err := b.pay(first, b.step(step.AtMostOnce()))
	b.must(err)
	first.Close() // the process died
	_, err = b.pool.Exec(t.Context(), "update pawl.command set lease_expires_at = now() - interval '1 minute'")
	b.must(err)
	second := begin()
	again, err := b.pay(second, b.step(step.AtMostOnce()))
	b.must(err)
	if charged != again {
		t.Errorf("%+v, then %+v", charged, again)
	}
	late := b.step(step.AtMostOnce())
	late.Name = "late"
	if _, err := b.pay(first, late); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("the first attempt: %v", err)
	}
	b.must(second.Succeed(t.Context(), again.ID))
	b.wantCharges(1)
}

// A job with an unknown step waits until that is settled, beyond its attempts, and continues.
func TestUnknown_TheJobWaitsAndGoesOn(t *testing.T) {
	t.Parallel()
	for verdict, requests := range map[string]int{"executed": 1, "not_executed": 2} {
		t.Run(verdict, func(t *testing.T) {
			t.Parallel()
			b := setup(t, time.Hour, lies(pawltest.CutAfter))
			var got atomic.Value
			b.work(func(_ context.Context, task job.Task[string]) error {
				s := b.step(step.AtMostOnce())
				c, err := b.pay(task.Job, s)
				if err == nil {
					got.Store(c)
				}
				return err
			})
			e, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "pay", Kind: "payment", Payload: []byte(`"x"`), MaxAttempts: 1})
			b.must(err)
			id := e.ID
			b.until("it waits", func() bool {
				return b.count("select count(*) from pawl.job where id = $1 and status = 'unknown'", id) == 1
			})
			b.wantStatus("unknown")
			var outcome string
			b.must(b.pool.QueryRow(t.Context(), `select s.outcome from pawl.step as e,
				pawl_v1.step_settle(e.scope, e.key, e.step, e.fence, $1, 'ada', 'looked it up', '{"result": "{\"id\": \"ch_1\"}"}') as s`, verdict).Scan(&outcome))
			if outcome != "settled" {
				t.Fatal(outcome)
			}
			b.until("it goes on", func() bool { return b.count("select count(*) from pawl.job") == 0 })
			b.wantCharges(1)
			if n := b.provider.Requests(); n != requests {
				t.Errorf("%d requests, want %d", n, requests)
			}
			if c, _ := got.Load().(pawltest.Charge); !strings.HasPrefix(c.ID, "ch_") {
				t.Errorf("%+v", c)
			}
			if n := b.count("select count(*) from pawl.audit where verb = 'step_settle'"); n != 1 {
				t.Errorf("%d records", n)
			}
		})
	}
}

// One call is one request, even if net/http would repeat it. A request outside a call is refused.
func TestTransport(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, func(n int, _ *http.Request) pawltest.Lie {
		if n == 1 {
			return pawltest.CutAfter // on a kept connection
		}
		return ""
	})
	j := b.claim()
	for _, name := range []string{"first", "second"} {
		s := b.step(step.AtMostOnce())
		s.Name = name
		_, err := b.pay(j, s)
		if unknown := errors.Is(err, pawl.ErrOutcomeUnknown); unknown != (name == "second") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := b.provider.Requests(); n != 2 {
		t.Errorf("%d requests", n)
	}
	if _, err := b.charge(t.Context(), "100 EUR"); err == nil || !strings.Contains(err.Error(), "outside of step.Run") {
		t.Errorf("%v", err)
	}
}

func TestRun_BadInput(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	j := b.claim()
	for what, change := range map[string]func(*step.Step){
		"no policy":         func(s *step.Step) { s.Recovery = step.Recovery{} },
		"no name":           func(s *step.Step) { s.Name = "" },
		"a long name":       func(s *step.Step) { s.Name = strings.Repeat("x", 256) },
		"no memory":         func(s *step.Step) { s.Recovery = step.Keyed(0) },
		"no probe":          func(s *step.Step) { s.Recovery = step.Checked(nil, 0) },
		"no JSON":           func(s *step.Step) { s.Request = func() {} },
		"a key with a feed": func(s *step.Step) { s.Key = "a\nb" },
	} {
		s := b.step(step.Keyed(time.Hour))
		change(&s)
		if _, err := b.pay(j, s); pawl.CodeOf(err) != pawl.CodeArgumentInvalid && pawl.CodeOf(err) != pawl.CodeKeyInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.wantCharges(0)
}

// The provider selects the probe. As JSON, two names with invalid UTF-8 could become one.
func TestRun_AProviderThatIsNoUTF8IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	s := b.step(step.Keyed(time.Hour))
	s.Provider = "bank\xff"
	if _, err := b.pay(b.claim(), s); !pawl.IsFinal(err) {
		t.Errorf("%v", err)
	}
	b.wantCharges(0)
}

// A step in its handler's own transaction is refused: its plan waits for that lock (trap T18).
func TestT18_AStepInsideTheTransactionIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	j := b.claim()
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	b.must(j.Hold(t.Context(), tx))
	if _, err := b.pay(j, b.step(step.Keyed(time.Hour))); pawl.CodeOf(err) != "55P03" || !strings.Contains(err.Error(), "job.Handle") {
		t.Errorf("%v", err)
	}
	b.wantCharges(0)
}

// A job with an unknown step keeps its lane's turn, so later jobs of the lane wait, too.
func TestUnknown_TheLaneKeepsItsTurn(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	var ran atomic.Value
	b.work(func(_ context.Context, task job.Task[string]) error {
		ran.Store(task.Value)
		if task.Value == "second" {
			return nil
		}
		_, err := step.Run(t.Context(), b.pool, task.Job, b.step(step.AtMostOnce()), func(context.Context, step.Call) (int, error) {
			return 0, errors.New("connection reset")
		})
		return err
	})
	for _, body := range []string{"first", "second"} {
		_, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "pay", Kind: "payment", Payload: []byte(`"` + body + `"`), Lane: "account 17"})
		b.must(err)
	}
	b.until("the first waits", func() bool {
		return b.count("select count(*) from pawl.job where status = 'unknown' and lane_head") == 1
	})
	_, err := b.pool.Exec(t.Context(), "select pawl_v1.lane_sweep()")
	b.must(err)
	if n := b.count("select count(*) from pawl.job where status = 'waiting'"); n != 1 || ran.Load() != "first" {
		t.Errorf("%d wait, %v ran", n, ran.Load())
	}
	b.must(b.pool.QueryRow(t.Context(), `select e.scope from pawl.step as e, pawl_v1.step_settle(e.scope, e.key, e.step, e.fence, 'executed', 'ann', 'r')`).Scan(new(string)))
	b.until("both are done", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	if ran.Load() != "second" {
		t.Errorf("%v ran last", ran.Load())
	}
}

// BenchmarkDo measures a step without its call, fresh and replayed.
func BenchmarkDo(b *testing.B) {
	pool := pawltest.DB(b)
	e, err := job.Enqueue(b.Context(), pool, job.Request{Queue: "pay", Kind: "payment"})
	if err != nil {
		b.Fatal(err)
	}
	j := job.Job{ID: e.ID, Queue: "pay", Kind: "payment"}
	if err := pool.QueryRow(b.Context(), "select c.fence, c.created_at from pawl_v1.job_claim_id($1, null) as c", e.ID).Scan(&j.Fence, &j.CreatedAt); err != nil {
		b.Fatal(err)
	}
	for _, kind := range []string{"fresh", "replayed"} {
		b.Run(kind, func(b *testing.B) {
			n := 0
			for b.Loop() {
				s := step.Step{Name: kind, Recovery: step.Keyed(time.Hour), Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}
				if kind == "fresh" {
					s.Name = fmt.Sprintf("%d of %d", n, b.N)
				}
				n++
				if _, err := step.Run(b.Context(), pool, j, s, func(context.Context, step.Call) (int, error) { return 1, nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
