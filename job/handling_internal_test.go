package job

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/patience"
)

var errTest = errors.New("a cause")

// However the context of an attempt ends, and whether Done was asked for before or after, it says what one of the standard library
// would, and so does a context made from it.
func TestHandling_EndsAsAContextDoes(t *testing.T) {
	t.Parallel()
	asked := map[string]func(context.Context){"asked": func(ctx context.Context) { ctx.Done() }, "not asked": func(context.Context) {}}
	for when, ask := range asked {
		for how, c := range map[string]struct {
			end   func(t *testing.T, a *attempt, s *session)
			err   error
			cause error
		}{
			"limit": {func(t *testing.T, a *attempt, s *session) {
				a.limit = time.Now().Add(10 * time.Millisecond)
				s.roll.watch(a, a.limit, a.limit.Add(time.Hour), nil)
				ask(a)
			}, context.DeadlineExceeded, context.DeadlineExceeded},
			"recall":  {func(t *testing.T, a *attempt, s *session) { ask(a); s.roll.recall([]int64{7}) }, context.Canceled, errRecalled},
			"session": {func(t *testing.T, a *attempt, s *session) { ask(a); s.lose() }, context.Canceled, context.Canceled},
			"cause":   {func(t *testing.T, a *attempt, s *session) { ask(a); a.cancel(errTest) }, context.Canceled, errTest},
		} {
			t.Run(when+" "+how, func(t *testing.T) {
				t.Parallel()
				s := &session{}
				s.ctx, s.end = context.WithCancel(context.WithValue(t.Context(), errTest, 7))
				a := &attempt{handling: handling{base: s.ctx}, s: s, jobs: []Job{{ID: 7}}}
				s.roll.call([]*attempt{a})
				if a.Err() != nil || a.Value(errTest) != 7 {
					t.Fatalf("begins with %v, value %v", a.Err(), a.Value(errTest))
				}
				c.end(t, a, s)
				patience.Until(t, "the attempt has ended", func() bool { return a.Err() != nil })
				if a.Err() != c.err || context.Cause(a) != c.cause || a.Value(errTest) != 7 {
					t.Errorf("ended with %v, cause %v, value %v; want %v, %v", a.Err(), context.Cause(a), a.Value(errTest), c.err, c.cause)
				}
				<-a.Done()
				child, cancel := context.WithCancel(a)
				defer cancel()
				if <-child.Done(); child.Err() != c.err || context.Cause(child) != c.cause {
					t.Errorf("what was made from it ended with %v, cause %v", child.Err(), context.Cause(child))
				}
				if a.recalled() != (how == "recall") {
					t.Error("recalled is wrong")
				}
			})
		}
	}
}

// An attempt that begins when its session has ended has a context that has ended.
func TestHandling_BeginsEndedInALostSession(t *testing.T) {
	t.Parallel()
	s := &session{}
	s.ctx, s.end = context.WithCancel(t.Context())
	s.lose()
	a := &attempt{handling: handling{base: s.ctx}, s: s}
	s.roll.call([]*attempt{a})
	if a.Err() != context.Canceled {
		t.Errorf("%v", a.Err())
	}
}

// One timer serves limits in any order, and those that come while it sleeps.
func TestRoll_ShorterLimitsAreNotLate(t *testing.T) {
	t.Parallel()
	s := &session{}
	s.ctx, s.end = context.WithCancel(t.Context())
	defer s.lose()
	limits := []time.Duration{time.Hour, 30 * time.Millisecond, time.Minute, 10 * time.Millisecond}
	all := make([]*attempt, len(limits))
	for i, limit := range limits {
		a := &attempt{handling: handling{base: s.ctx}, s: s}
		all[i] = a
		s.roll.call([]*attempt{a})
		a.limit = time.Now().Add(limit)
		s.roll.watch(a, a.limit, a.limit.Add(time.Hour), nil)
	}
	patience.Until(t, "the limits of milliseconds have ended two contexts", func() bool { return all[1].Err() != nil && all[3].Err() != nil })
	if all[0].Err() != nil || all[2].Err() != nil {
		t.Error("a long limit ended")
	}
	for _, a := range all {
		s.roll.strike(a)
	}
	if s.roll.all != nil {
		t.Error("the roll is not empty")
	}
}
