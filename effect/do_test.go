package effect_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/effect"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// What was recorded is not called again, by whichever attempt.
func TestDo_ReplaysWhatWasRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	j := b.claim()
	first, err := b.pay(j, b.step(effect.Keyed(time.Hour)))
	b.must(err)
	again, err := b.pay(b.reclaim(j.ID), b.step(effect.AtMostOnce()))
	b.must(err)
	if first != again || b.provider.Requests() != 1 || b.counters.Count(pawl.EventReplay) != 1 {
		t.Errorf("%+v, then %+v, in %d requests", first, again, b.provider.Requests())
	}
	if !strings.HasPrefix(first.Key, "pawl-") || len(first.Key) > 255 {
		t.Errorf("key %q", first.Key)
	}
	var reference string
	b.must(b.pool.QueryRow(t.Context(), "select reference from pawl.effect").Scan(&reference))
	if reference != first.ID {
		t.Errorf("reference %q", reference)
	}
}

// A call whose answer is lost, in every way a provider can lose it, is one charge under Keyed and Checked.
func TestT32_AnAmbiguousTimeoutIsNoFailure(t *testing.T) {
	t.Parallel()
	for _, lie := range []pawltest.Lie{pawltest.TimeOutBefore, pawltest.TimeOutAfter, pawltest.CutBefore, pawltest.CutAfter,
		pawltest.FailBefore, pawltest.FailAfter, pawltest.Conflict} {
		for _, name := range []string{"keyed", "checked"} {
			t.Run(name+", "+string(lie), func(t *testing.T) {
				t.Parallel()
				b := setup(t, time.Hour, lies(lie))
				policy := effect.Keyed(time.Hour)
				if name == "checked" {
					policy = effect.Checked(b.found("100 EUR"), 50*time.Millisecond)
				}
				j := b.claim()
				if _, err := b.pay(j, b.step(policy)); err == nil || pawl.IsFinal(err) || errors.Is(err, pawl.ErrOutcomeUnknown) {
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

// At most once: where nobody can tell the step is unknown, is never called again in silence, and says so each time.
func TestAtMostOnce_DoubtsAreUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, lies(pawltest.TimeOutAfter))
	j := b.claim()
	for range 2 {
		if _, err := b.pay(j, b.step(effect.AtMostOnce())); !errors.Is(err, pawl.ErrOutcomeUnknown) {
			t.Errorf("%v", err)
		}
		j = b.reclaim(j.ID)
	}
	b.wantCharges(1)
	b.wantStatus("unknown")
}

// What was certainly not sent leaves no doubt, whatever the policy.
func TestAtMostOnce_NotSentIsNoDoubt(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, lies(pawltest.Conflict))
	away := b.provider.URL
	b.provider.URL = "http://127.0.0.1:1" // nobody listens
	j := b.claim()
	_, err := b.pay(j, b.step(effect.AtMostOnce()))
	if err == nil || errors.Is(err, pawl.ErrOutcomeUnknown) {
		t.Errorf("a connection that was never made: %v", err)
	}
	b.provider.URL = away
	if _, err := b.pay(j, b.step(effect.AtMostOnce())); err == nil || errors.Is(err, pawl.ErrOutcomeUnknown) {
		t.Errorf("a 409: %v", err)
	}
	_, err = b.pay(j, b.step(effect.AtMostOnce()))
	b.must(err)
	b.wantCharges(1)
}

// After the provider's memory nothing is sent again without a verdict (trap T31).
func TestT31_NothingIsSentPastTheProvidersMemory(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Second, lies(pawltest.CutAfter))
	j := b.claim()
	step := b.step(effect.Keyed(time.Second))
	_, err := b.pay(j, step)
	if err == nil {
		t.Fatal("the answer was not lost")
	}
	time.Sleep(950 * time.Millisecond) // of 1 s a tenth is not used
	if _, err := b.pay(b.reclaim(j.ID), step); !errors.Is(err, pawl.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	b.wantCharges(1)
	if n := b.provider.Requests(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// A refusal is stored, final, and the same at every attempt.
func TestDo_Refused(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	j := b.claim()
	for range 2 {
		_, err := effect.Do(t.Context(), b.pool, j, b.step(effect.AtMostOnce()), func(context.Context, effect.Call) (string, error) {
			return "", effect.Refused("card_declined", "no money")
		})
		var refusal *effect.Refusal
		if !pawl.IsFinal(err) || !errors.As(err, &refusal) || *refusal != (effect.Refusal{Code: "card_declined", Message: "no money"}) {
			t.Errorf("%v", err)
		}
		j = b.reclaim(j.ID)
	}
	b.wantStatus("failed_final")
}

// The same step with another request is refused before anything is sent.
func TestDo_AnotherRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	j := b.claim()
	_, err := b.pay(j, b.step(effect.Keyed(time.Hour)))
	b.must(err)
	s := b.step(effect.Keyed(time.Hour))
	s.Request = "200 EUR"
	if _, err := b.pay(j, s); !errors.Is(err, pawl.ErrKeyReused) {
		t.Errorf("%v", err)
	}
}

// An attempt that does not own the job any more is refused before it calls; one that lost it while it called is believed all the
// same: what the provider did is true.
func TestDo_Zombies(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	zombie := b.claim()
	successor := job.Job{}
	_, err := effect.Do(t.Context(), b.pool, zombie, b.step(effect.AtMostOnce()), func(ctx context.Context, c effect.Call) (pawltest.Charge, error) {
		successor = b.reclaim(zombie.ID)
		if _, err := b.pay(successor, b.step(effect.AtMostOnce())); !errors.Is(err, pawl.ErrOutcomeUnknown) {
			t.Errorf("the successor: %v", err)
		}
		b.wantStatus("unknown")
		return b.charge(ctx, "100 EUR")
	})
	b.must(err)
	b.wantStatus("succeeded")
	c, err := b.pay(successor, b.step(effect.AtMostOnce()))
	b.must(err)
	b.wantCharges(1)
	if c != b.provider.Charges()[0] {
		t.Errorf("%+v", c)
	}
	s := b.step(effect.AtMostOnce())
	s.Name = "another"
	if _, err := b.pay(zombie, s); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("the zombie's next step: %v", err)
	}
	b.wantCharges(1)
}

// A zombie that calls when its successor has probed and called is the one way to two charges under Checked. It is seen.
func TestChecked_TheZombieThatCallsLateIsSeen(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	zombie := b.claim()
	s := b.step(effect.Checked(b.found("100 EUR"), time.Millisecond))
	_, err := effect.Do(t.Context(), b.pool, zombie, s, func(context.Context, effect.Call) (pawltest.Charge, error) {
		if _, err := b.pay(b.reclaim(zombie.ID), s); err != nil { // waits until nothing can be sent any more
			t.Errorf("the successor: %v", err)
		}
		return charge(context.Background(), http.DefaultClient, b.provider.URL, "100 EUR") // frozen between the check and the write
	})
	b.must(err)
	b.wantCharges(2)
	b.wantStatus("succeeded")
	if n := b.counters.Count(pawl.EventEffectTwice); n != 1 {
		t.Errorf("reported %d times", n)
	}
}

// A handler that is run again runs only what it has not done.
func TestDo_FiveSteps(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	var runs [5]atomic.Int32
	var failed atomic.Bool
	b.work(func(ctx context.Context, task job.Task[string]) error {
		for n, name := range []string{"a", "b", "c", "d", "e"} {
			s := effect.Step{Name: name, Policy: effect.AtMostOnce(), Request: name, Hooks: b.counters.Hooks()}
			_, err := effect.Do(ctx, b.pool, task.Job, s, func(context.Context, effect.Call) (int, error) {
				runs[n].Add(1)
				return n, nil
			})
			if err != nil {
				return err
			}
			if n == 2 && !failed.Swap(true) {
				return errors.New("after the third step")
			}
		}
		return nil
	})
	b.enqueue("x")
	b.until("done", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	for n := range runs {
		if got := runs[n].Load(); got != 1 {
			t.Errorf("step %d ran %d times", n, got)
		}
	}
	b.wantStatus("succeeded succeeded succeeded succeeded succeeded")
}

// A job with an unknown step waits for a verdict, however many attempts it has left, and goes on with it.
func TestUnknown_TheJobWaitsAndGoesOn(t *testing.T) {
	t.Parallel()
	for verdict, requests := range map[string]int{"landed": 1, "not_landed": 2} {
		t.Run(verdict, func(t *testing.T) {
			t.Parallel()
			b := setup(t, time.Hour, lies(pawltest.CutAfter))
			var got atomic.Value
			b.work(func(_ context.Context, task job.Task[string]) error {
				s := b.step(effect.AtMostOnce())
				c, err := b.pay(task.Job, s)
				if err == nil {
					got.Store(c)
				}
				return err
			})
			id := b.enqueue("x")
			b.until("it waits", func() bool {
				return b.count("select count(*) from pawl.job where id = $1 and status = 'unknown'", id) == 1
			})
			b.wantStatus("unknown")
			var outcome string
			b.must(b.pool.QueryRow(t.Context(), `select s.outcome from pawl.effect as e,
				pawl_v1.effect_settle(e.scope, e.key, e.step, $1, 'ada', 'looked it up', '{"result": "{\"id\": \"ch_1\"}"}') as s`, verdict).Scan(&outcome))
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
			if n := b.count("select count(*) from pawl.audit where verb = 'effect_settle'"); n != 1 {
				t.Errorf("%d records", n)
			}
		})
	}
}

// One call is one request, also where net/http would repeat it by itself; and no request slips by.
func TestTransport(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, func(n int, _ *http.Request) pawltest.Lie {
		if n == 1 {
			return pawltest.CutAfter // on a connection that was kept
		}
		return ""
	})
	j := b.claim()
	for _, name := range []string{"first", "second"} {
		s := b.step(effect.AtMostOnce())
		s.Name = name
		_, err := b.pay(j, s)
		if unknown := errors.Is(err, pawl.ErrOutcomeUnknown); unknown != (name == "second") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := b.provider.Requests(); n != 2 {
		t.Errorf("%d requests", n)
	}
	if _, err := b.charge(t.Context(), "100 EUR"); err == nil || !strings.Contains(err.Error(), "outside of effect.Do") {
		t.Errorf("%v", err)
	}
}

func TestDo_BadInput(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	j := b.claim()
	for what, change := range map[string]func(*effect.Step){
		"no policy":         func(s *effect.Step) { s.Policy = effect.Policy{} },
		"no name":           func(s *effect.Step) { s.Name = "" },
		"a long name":       func(s *effect.Step) { s.Name = strings.Repeat("x", 256) },
		"no memory":         func(s *effect.Step) { s.Policy = effect.Keyed(0) },
		"no probe":          func(s *effect.Step) { s.Policy = effect.Checked(nil, 0) },
		"no JSON":           func(s *effect.Step) { s.Request = func() {} },
		"a key with a feed": func(s *effect.Step) { s.Key = "a\nb" },
	} {
		s := b.step(effect.Keyed(time.Hour))
		change(&s)
		if _, err := b.pay(j, s); pawl.CodeOf(err) != pawl.CodeArgumentInvalid && pawl.CodeOf(err) != pawl.CodeKeyInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.wantCharges(0)
}
