package httpkey_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/command/httpkey"
)

// commit places one order in Commit, with its answer.
func commit(w http.ResponseWriter, r *http.Request, a *httpkey.Attempt) error {
	return a.Commit(r.Context(), func(ctx context.Context, tx pgx.Tx) error { return place(w, r.WithContext(ctx), tx) })
}

// A thousand requests create one order. Another body is refused while the first request runs.
func TestLeased_AThousandAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	gate := func(w http.ResponseWriter, r *http.Request, a *httpkey.Attempt) error {
		if r.Header.Get("X-Slow") != "" {
			close(entered)
			<-leave
		}
		return commit(w, r, a)
	}
	s := b.leased(httpkey.Lease{}, gate, httpkey.Options{Wait: 2 * minute, AcquireTimeout: minute})
	hasty := b.leased(httpkey.Lease{}, gate, httpkey.Options{})
	first := make(chan got)
	go func() { first <- hasty.post("slow", "a", "X-Slow", "yes") }()
	<-entered
	b.wantProblem(hasty.post("slow", "b"), 422, "key-reused", false)
	b.wantProblem(hasty.post("slow", "a"), 409, "in-progress", false)
	close(leave)
	b.wantStatus(<-first, 201)
	atOnce(s, 1000, "k", "a")
	b.wantOrders(2)
	b.wantLedger("succeeded 1, succeeded 1")
}

// A response without Commit is stored alone. A status that is not final is only sent.
func TestLeased_WithoutCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	status, runs := 0, 0
	s := b.leased(httpkey.Lease{}, func(w http.ResponseWriter, _ *http.Request, _ *httpkey.Attempt) error {
		runs++
		w.WriteHeader(status)
		_, err := w.Write([]byte("no stock"))
		return err
	}, httpkey.Options{})
	for _, status = range []int{503, 409, 200} {
		if g := s.post("k", "a"); g.body != "no stock" || g.replayed() != (status == 200) {
			t.Errorf("%d: %v", status, g)
		}
	}
	if runs != 2 {
		t.Errorf("%d runs", runs)
	}
	b.wantLedger("succeeded 2")
}

// The response of an attempt that lost its key is not sent, however the handler ends. One event
// reports the loss.
func TestLeased_ALateAnswerIsNotPassedOn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]httpkey.LeasedHandler{
		"no answer": func(w http.ResponseWriter, _ *http.Request, _ *httpkey.Attempt) error {
			http.Error(w, "no stock", http.StatusServiceUnavailable)
			return nil
		},
		"an answer": func(http.ResponseWriter, *http.Request, *httpkey.Attempt) error { return nil },
		"an error":  func(http.ResponseWriter, *http.Request, *httpkey.Attempt) error { return errors.New("boom") },
		"commit":    commit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.leased(httpkey.Lease{}, func(w http.ResponseWriter, r *http.Request, a *httpkey.Attempt) error {
				// A newer attempt took the key over.
				b.exec("update pawl.command set fence = nextval('pawl.fence_seq')")
				return end(w, r, a)
			}, httpkey.Options{})
			b.wantProblem(s.post("k", "a"), 409, "in-progress", false)
			b.wantLedger("processing 1")
			if n := b.counters.Count(pawl.EventStaleWriteRefused); n != 1 {
				t.Errorf("%d events, want 1", n)
			}
		})
	}
}

// An attempt with unknown outcome does not run again unless the route is repeatable.
func TestLeased_Silence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fails httpkey.LeasedHandler
		again string // with Repeatable
	}{
		"panic": {func(http.ResponseWriter, *http.Request, *httpkey.Attempt) error { panic("oh") }, "not-done"},
		"timeout": {func(_ http.ResponseWriter, r *http.Request, _ *httpkey.Attempt) error {
			<-r.Context().Done()
			return r.Context().Err()
		}, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			options := httpkey.Options{Timeout: 50 * time.Millisecond}
			b.wantProblem(b.leased(httpkey.Lease{}, c.fails, options).post("once", "a"), 409, "outcome-unknown", false)
			b.wantProblem(b.leased(httpkey.Lease{}, commit, httpkey.Options{}).post("once", "a"), 409, "outcome-unknown", false)
			b.wantOrders(0)
			repeatable := httpkey.Lease{Repeatable: true}
			status := map[string]int{"not-done": 500, "unavailable": 503}[c.again]
			b.wantProblem(b.leased(repeatable, c.fails, options).post("again", "a"), status, c.again, false)
			b.wantStatus(b.leased(repeatable, commit, httpkey.Options{}).post("again", "a"), 201)
			b.wantOrders(1)
		})
	}
}

// After the command is settled by hand, a retry is answered that the stored answer is missing.
func TestLeased_Settled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.leased(httpkey.Lease{}, func(http.ResponseWriter, *http.Request, *httpkey.Attempt) error {
		return command.Unknown(errors.New("the provider did not answer"))
	}, httpkey.Options{})
	b.wantProblem(s.post("k", "a"), 409, "outcome-unknown", false)
	b.exec(`select pawl_v1.command_settle(c.scope, c.key, c.fence, 'executed', 'somebody', 'looked it up') from pawl.command as c`)
	b.wantProblem(s.post("k", "a"), 200, "answer-not-kept", false)
}

// The response is reset when Commit's transaction runs again or fails. A write after Commit fails.
// A status that is not final cannot be committed.
func TestLeased_CommitAndItsResponse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.leased(httpkey.Lease{}, func(w http.ResponseWriter, r *http.Request, a *httpkey.Attempt) error {
		w.Header().Set("Etag", `"1"`)
		err := a.Commit(r.Context(), func(ctx context.Context, tx pgx.Tx) error {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, err := insert(r.WithContext(ctx), tx)
			return err
		})
		if err == nil {
			t.Error("503 was committed")
		}
		runs := 0
		err = a.Commit(r.Context(), func(ctx context.Context, tx pgx.Tx) error {
			w.Header().Add("Location", "/a")
			created(w, 1)
			if _, err := tx.Exec(ctx, "insert into orders (body) values ('b')"); err != nil {
				return err
			}
			if runs++; runs < 3 {
				_, err := tx.Exec(ctx, "do $$ begin raise exception 'lost' using errcode = '40001'; end $$")
				return err
			}
			return nil
		})
		if second := a.Commit(r.Context(), func(context.Context, pgx.Tx) error { return nil }); !errors.Is(second, pawl.ErrFenceLost) {
			t.Errorf("a second Commit: %v", second)
		}
		if _, late := w.Write([]byte("late")); !errors.Is(late, httpkey.ErrSealed) {
			t.Errorf("Write: %v", late)
		}
		return err
	}, httpkey.Options{})
	first, again := s.post("k", "a"), s.post("k", "a")
	if first.status != 201 || first.stored() != again.stored() || first.header.Get("Etag") != `"1"` || len(first.header["Location"]) != 1 {
		t.Errorf("%v\n%v", first, again)
	}
	b.wantOrders(1)
	if n := b.counters.Count(pawl.EventError); n != 1 {
		t.Errorf("the late write was reported %d times", n)
	}
}

func TestLeased_CallerGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	s := b.leased(httpkey.Lease{}, func(w http.ResponseWriter, r *http.Request, a *httpkey.Attempt) error {
		close(entered)
		<-leave
		return commit(w, r, a)
	}, httpkey.Options{})
	ctx, gone := context.WithCancel(t.Context())
	go func() {
		<-entered
		gone()
	}()
	if g, err := s.try(ctx, "k", "a"); err == nil {
		t.Errorf("%v", g)
	}
	close(leave)
	<-s.done
	if g := s.post("k", "a"); g.status != 201 || !g.replayed() {
		t.Errorf("%v", g)
	}
	b.wantOrders(1)
}
