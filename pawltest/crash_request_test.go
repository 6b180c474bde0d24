package pawltest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

const purchases = "create table orders (id bigserial primary key, item text not null, at timestamptz not null default now())"

func purchase() *http.Request {
	return httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"item":"tea"}`))
}

func acme(*http.Request) (string, error) { return "acme", nil }

var unheard = httpkey.Options{Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}

// place inserts an order, and answers with its id.
func place(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
	var o struct{ Item string }
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return pawl.Final(err)
	}
	var id int64
	if err := tx.QueryRow(r.Context(), "insert into orders (item) values ($1) returning id", o.Item).Scan(&id); err != nil {
		return err
	}
	if _, err := job.Enqueue(r.Context(), tx, job.Request{Queue: "mail", Kind: "receipt", Value: o}); err != nil {
		return err
	}
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", id))
	w.WriteHeader(http.StatusCreated)
	_, err := fmt.Fprintf(w, `{"item":%q}`, o.Item)
	return err
}

// A correct handler of each form passes.
func TestCrashRequest_GoodHandlers(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(*pgxpool.Pool) http.Handler{
		"Once": func(pool *pgxpool.Pool) http.Handler { return httpkey.Once(pool, acme, unheard, place) },
		"OnceSQL": func(pool *pgxpool.Pool) http.Handler {
			return httpkey.OnceSQL(stdlib.OpenDBFromPool(pool), acme, unheard, func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
				w.WriteHeader(http.StatusCreated)
				_, err := tx.ExecContext(r.Context(), "insert into orders (item) values ('tea')")
				return err
			})
		},
		"Leased": func(pool *pgxpool.Pool) http.Handler {
			return httpkey.Leased(pool, acme, httpkey.Lease{Repeatable: true}, unheard, func(w http.ResponseWriter, r *http.Request, a *httpkey.Attempt) error {
				return a.Commit(r.Context(), func(_ context.Context, tx pgx.Tx) error { return place(w, r, tx) })
			})
		},
		"Once, refused": func(pool *pgxpool.Pool) http.Handler {
			audit := func(ctx context.Context) error {
				_, err := pool.Exec(ctx, "insert into orders (id, item) values (0, 'seen') on conflict do nothing")
				return err
			}
			return httpkey.Once(pool, acme, unheard, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
				http.Error(w, "sold out", http.StatusConflict)
				return audit(r.Context())
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pawltest.RequestTest{Schema: []string{purchases}, Make: made, Request: purchase}
			pawltest.CrashEverywhere(t, p)
			pawltest.Twice(t, p)
		})
	}
}

// A faulty handler of each form is found. The message names the point, the difference and the fix.
func TestCrashRequest_WrongHandlersAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(*pgxpool.Pool) http.Handler
		want string
	}{
		"Once, a row through the pool": {func(pool *pgxpool.Pool) http.Handler {
			return httpkey.Once(pool, acme, unheard, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
				_, err := pool.Exec(r.Context(), "insert into orders (item) values ('outside')")
				return errors.Join(err, place(w, r, tx))
			})
		}, `death after "insert into orders (item) values ('outside')" (point 4): table orders has 3 rows; an undisturbed run leaves 2`},
		"Once, a job through the pool": {func(pool *pgxpool.Pool) http.Handler {
			return httpkey.Once(pool, acme, unheard, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
				_, err := job.Enqueue(r.Context(), pool, job.Request{Queue: "mail", Kind: "receipt", Value: "tea"})
				return errors.Join(err, place(w, r, tx))
			})
		}, `the list of enqueued jobs has 3 rows; an undisturbed run leaves 2`},
		"Leased, a row outside of Commit": {func(pool *pgxpool.Pool) http.Handler {
			return httpkey.Leased(pool, acme, httpkey.Lease{Repeatable: true}, unheard, func(w http.ResponseWriter, r *http.Request, _ *httpkey.Attempt) error {
				w.WriteHeader(http.StatusCreated)
				_, err := pool.Exec(r.Context(), "insert into orders (item) values ('outside')")
				return err
			})
		}, `death before pawl_v1.command_succeed (point 5): table orders has 2 rows; an undisturbed run leaves 1`},
		"Leased, not to be repeated": {func(pool *pgxpool.Pool) http.Handler {
			return httpkey.Leased(pool, acme, httpkey.Lease{}, unheard, func(w http.ResponseWriter, r *http.Request, a *httpkey.Attempt) error {
				return a.Commit(r.Context(), func(_ context.Context, tx pgx.Tx) error { return place(w, r, tx) })
			})
		}, `status ("409") from an undisturbed run`},
		"Once, without a key": {func(pool *pgxpool.Pool) http.Handler {
			h := httpkey.Once(pool, acme, httpkey.Options{Optional: true, Hooks: unheard.Hooks}, place)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del(httpkey.KeyHeader)
				h.ServeHTTP(w, r)
			})
		}, `without a death: table orders has 2 rows; an undisturbed run leaves 1`},
		"always 500": {func(pool *pgxpool.Pool) http.Handler {
			return httpkey.Once(pool, acme, unheard, func(http.ResponseWriter, *http.Request, pgx.Tx) error { return errors.New("no") })
		}, `undisturbed: the request was sent 20 times, and is still answered 500`},
		"on another pool": {func(*pgxpool.Pool) http.Handler {
			return httpkey.Once(pawltest.DB(t, purchases), acme, unheard, place)
		}, `changed no table and enqueued nothing, so nothing is tested`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := judged(t, func(tb testing.TB) {
				pawltest.CrashEverywhere(tb, pawltest.RequestTest{Schema: []string{purchases}, Make: c.make, Request: purchase})
			})
			if !strings.Contains(said, c.want) {
				t.Errorf("said %s", said)
			}
		})
	}
}

// A test without a point to die at fails, even if Check has something to count.
func TestCrashRequest_ProvesSomething(t *testing.T) {
	t.Parallel()
	elsewhere := pawltest.DB(t, purchases)
	said := judged(t, func(tb testing.TB) {
		pawltest.CrashEverywhere(tb, pawltest.RequestTest{Schema: []string{purchases}, Request: purchase,
			Make:  func(*pgxpool.Pool) http.Handler { return httpkey.Once(elsewhere, acme, unheard, place) },
			Check: func(testing.TB, *pgxpool.Pool) {}})
	})
	if !strings.Contains(said, "there was no point to die at, so nothing is tested: did the handler use the pool passed to Make?") {
		t.Errorf("said %s", said)
	}
}
