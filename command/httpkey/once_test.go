package httpkey_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command/httpkey"
)

// A thousand requests with one key create one order and get one answer. Another body is refused.
func TestOnce_AThousandAtOnce(t *testing.T) {
	t.Parallel()
	const requests = 1000
	b := setup(t)
	s := b.once(place, httpkey.Options{Wait: 2 * minute, AcquireTimeout: minute})
	first := atOnce(s, requests, "k", "two shoes")
	b.wantOrders(1)
	b.wantLedger("succeeded 1")
	b.wantProblem(s.post("k", "three shoes"), 422, "key-reused", false)
	if again := s.post("k", "two shoes"); again.stored() != first.stored() || !again.replayed() {
		t.Errorf("%v, want %v", again, first)
	}
	b.wantOrders(1)
}

// atOnce sends the same request many times. One is executed, and all get the same answer.
func atOnce(s *site, requests int, key, body string) got {
	s.Helper()
	answers := make([]got, requests)
	var all sync.WaitGroup
	start := make(chan struct{})
	for n := range requests {
		all.Go(func() {
			<-start
			var err error
			if answers[n], err = s.try(s.Context(), key, body); err != nil {
				s.Error(err)
			}
		})
	}
	close(start)
	all.Wait()
	made := 0
	for _, g := range answers {
		if !g.replayed() {
			made++
		}
		if g.status != http.StatusCreated || g.stored() != answers[0].stored() {
			s.Fatalf("%v\n%v", g, answers[0])
		}
	}
	if made != 1 {
		s.Errorf("%d answers were made, want 1", made)
	}
	s.Logf("%d answers, all %s", requests, answers[0].stored())
	return answers[0]
}

// While the first request runs, other requests are answered 409.
func TestOnce_InProgress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	s := b.once(func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		close(entered)
		<-leave
		return place(w, r, tx)
	}, httpkey.Options{})
	first := make(chan got)
	go func() { first <- s.post("k", "a") }()
	<-entered
	b.wantProblem(s.post("k", "a"), 409, "in-progress", false)
	// The first transaction is not visible yet, so this is not a mismatch.
	b.wantProblem(s.post("k", "b"), 409, "in-progress", false)
	close(leave)
	b.wantStatus(<-first, 201)
	b.wantProblem(s.post("k", "b"), 422, "key-reused", false)
	b.wantOrders(1)
}

// The status decides about the rows, the stored answer and retries.
func TestOnce_Statuses(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		orders   int
		replayed bool
		ledger   string
	}{
		200: {1, true, "succeeded 1"}, 204: {1, true, "succeeded 1"}, 302: {1, true, "succeeded 1"}, 304: {1, true, "succeeded 1"},
		400: {0, true, "succeeded 1"}, 404: {0, true, "succeeded 1"}, 422: {0, true, "succeeded 1"},
		408: {0, false, "failed_retryable 2"}, 425: {0, false, "failed_retryable 2"}, 429: {0, false, "failed_retryable 2"},
		500: {0, false, "failed_retryable 2"}, 503: {0, false, "failed_retryable 2"},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.once(func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
				if _, err := insert(r, tx); err != nil {
					return err
				}
				w.Header().Set("X-Reason", "ours")
				w.WriteHeader(status)
				_, err := w.Write([]byte("the handler's own words"))
				if bodiless := status == 204 || status == 304; bodiless != (err != nil) {
					t.Errorf("Write: %v", err)
				}
				return nil
			}, httpkey.Options{Headers: []string{"X-Reason"}})
			s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			for n := range 2 {
				g := s.post("k", "a")
				b.wantStatus(g, status)
				if g.header.Get("X-Reason") != "ours" || g.replayed() != (want.replayed && n == 1) {
					t.Errorf("%v", g)
				}
			}
			b.wantOrders(want.orders)
			b.wantLedger(want.ledger)
		})
	}
}

// KeepRefused keeps the rows of a refusal. A refusal may follow a failed statement.
func TestOnce_Refusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refuse := func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		_, err := insert(r, tx)
		http.Error(w, "not in stock", http.StatusConflict)
		return err
	}
	b.wantStatus(b.once(refuse, httpkey.Options{KeepRefused: true}).post("kept", "a"), 409)
	b.wantOrders(1)
	s := b.once(func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		if _, err := tx.Exec(r.Context(), "select 1/0"); err == nil {
			t.Error("no error")
		}
		http.Error(w, "not in stock", http.StatusConflict)
		return nil
	}, httpkey.Options{})
	for range 2 {
		if g := s.post("failed-statement", "a"); g.status != 409 || g.body != "not in stock\n" {
			t.Errorf("%v", g)
		}
	}
	b.wantOrders(1)
}

// Errors drop the response. A final error, without its text, is the answer of every retry.
func TestOnce_Errors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	runs := 0
	fails := func(err error) httpkey.Handler[pgx.Tx] {
		return func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
			runs++
			if _, err := insert(r, tx); err != nil {
				return err
			}
			w.WriteHeader(http.StatusCreated)
			return err
		}
	}
	final := b.once(fails(pawl.Final(errPlain)), httpkey.Options{})
	for range 2 {
		g := final.post("final", "a")
		b.wantProblem(g, 422, "failed", true)
		if strings.Contains(g.body, errPlain.Error()) {
			t.Errorf("it tells of our insides: %v", g)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
	b.wantProblem(b.once(fails(errPlain), httpkey.Options{}).post("plain", "a"), 500, "not-done", false)
	b.wantStatus(b.once(place, httpkey.Options{}).post("plain", "a"), 201)
	b.wantOrders(1)
}

// Errors that the handler got for other keys and fences do not count for the request's key.
func TestOnce_ErrorsOfOtherKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		err    error
		status int
		kind   string
		safe   bool
	}{
		{pawl.ErrKeyReused, 422, "failed", true}, // final: the same request would be refused again
		{pawl.ErrFailedFinal, 422, "failed", true},
		{pawl.ErrFenceLost, 500, "not-done", false},
		{pawl.ErrAlreadyHandled, 500, "not-done", false},
		{pawl.ErrArgumentInvalid, 500, "not-done", false},
		{pawl.ErrOutcomeUnknown, 409, "outcome-unknown", false}, // of a step of this command
	} {
		door := b.once(func(http.ResponseWriter, *http.Request, pgx.Tx) error { return fmt.Errorf("of a job: %w", c.err) }, httpkey.Options{})
		b.wantProblem(door.post("fresh-"+string(pawl.CodeOf(c.err)), "a"), c.status, c.kind, c.safe)
	}
}

func TestOnceSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := stdlib.OpenDBFromPool(b.pool)
	t.Cleanup(func() { _ = db.Close() })
	s := b.serve(httpkey.OnceSQL(db, tenant, httpkey.Options{Wait: minute, Hooks: b.hooks()}, func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
		if _, err := tx.ExecContext(r.Context(), "insert into orders (body) values ('sql')"); err != nil {
			return err
		}
		if r.Header.Get("X-Refuse") != "" {
			http.Error(w, "no", http.StatusPaymentRequired)
			return nil
		}
		created(w, 1)
		return nil
	}))
	atOnce(s, 50, "k", "a")
	for n := range 2 {
		if g := s.post("refused", "a", "X-Refuse", "yes"); g.status != 402 || g.replayed() != (n == 1) {
			t.Errorf("%v", g)
		}
	}
	b.wantOrders(1)
	b.wantLedger("succeeded 1, succeeded 1")
}

// A request without a key is refused, or is an intent of its own if that is allowed.
func TestOnce_WithoutKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wantProblem(b.once(place, httpkey.Options{}).post("", "a"), 400, "key-missing", true)
	b.wantOrders(0)
	s := b.once(place, httpkey.Options{Optional: true})
	for range 2 {
		b.wantStatus(s.post("", "a"), 201)
	}
	b.wantOrders(2)
	b.want("select count(*) from pawl.command where expires_at < now() + interval '2 minutes'", 2)
}

// Different tenants and routes with different names share no keys, even with unusual names.
func TestOnce_Scopes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	shoes, hats := b.once(place, httpkey.Options{Name: "shoes"}), b.once(place, httpkey.Options{Name: "hats"})
	names := []string{"acme", "umbrella", strings.Repeat("long", 200), "tab\tbed", "\xff", "2:ab1:c"}
	for _, s := range []*site{shoes, hats} {
		for _, name := range names {
			if g := s.post("k", "a", "X-Tenant", name); g.status != 201 || g.replayed() {
				t.Errorf("%q: %v", name, g)
			}
		}
	}
	b.wantOrders(2 * len(names))
	anonymous := func(*http.Request) (string, error) { return "", nil }
	b.wantProblem(b.serve(httpkey.Once(b.pool, anonymous, httpkey.Options{}, place)).post("k", "a"), 403, "forbidden", false)
}

// If the transaction runs again, the handler gets the whole body and an empty response.
func TestOnce_RunsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	runs := 0
	s := b.once(func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		w.Header().Add("Location", "/once")
		if err := place(w, r, tx); err != nil {
			return err
		}
		if runs++; runs < 3 {
			_, err := tx.Exec(r.Context(), "do $$ begin raise exception 'lost' using errcode = '40001'; end $$")
			return err
		}
		return nil
	}, httpkey.Options{})
	if g := s.post("k", "a"); g.status != 201 || strings.Count(g.body, "id") != 1 || len(g.header["Location"]) != 1 || runs != 3 {
		t.Errorf("%v after %d runs", g, runs)
	}
	b.want("select count(*) from orders where body = 'a'", 1)
}

// Invalid options panic when the server starts.
func TestOptions_Invalid(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]httpkey.Options{
		"response": {MaxResponse: 5 << 20}, "negative": {Wait: -1}, "cookie": {Headers: []string{"set-cookie"}},
		"credentials": {Headers: []string{"Authorization"}}, "hop": {Headers: []string{"proxy-authenticate"}},
		"timeout": {Timeout: -1}, "short retention": {Retention: time.Millisecond}, "long retention": {Retention: 11 * 365 * 24 * time.Hour},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: accepted", name)
				}
			}()
			// Not nil: that would panic for another reason.
			httpkey.Once(new(pgxpool.Pool), tenant, p, place)
		}()
	}
}
