package httpkey_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// An invalid key is answered 400, and the handler does not run.
func TestKey_BadInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.once(func(http.ResponseWriter, *http.Request, pgx.Tx) error {
		t.Error("the handler was entered")
		return nil
	}, httpkey.Options{Optional: true})
	for _, key := range []string{
		`""`, strings.Repeat("k", 256), `"` + strings.Repeat("k", 256) + `"`, "schlüssel", `"schlüssel"`, "\xff", `"\xff"`,
		`"unterminated`, `"`, `"a\"`, `"a"b`, `"a";p=1`, `"a", "b"`, `"a\b"`, "a b", "a,b", `a"b`, "a\tb", "\"a\tb\"",
	} {
		b.wantProblem(s.post(key, "a"), 400, "key-malformed", true)
	}
	b.wantProblem(s.post("a", "a", "Idempotency-Key", "b"), 400, "key-malformed", true)
	b.wantProblem(s.post("a", "a", "Idempotency-Key", "a"), 400, "key-malformed", true)
	b.want("select count(*) from pawl.command", 0)
}

// A key is the same quoted or bare, and has up to 255 characters.
func TestKey_QuotedOrBare(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.once(place, httpkey.Options{})
	longest := strings.Repeat("k", 255)
	for n, pair := range [][2]string{
		{"abc-1", `"abc-1"`}, {`back\slash`, `"back\\slash"`}, {longest, `"` + longest + `"`}, {"{}[]()!#'*;=?", `"{}[]()!#'*;=?"`},
		{`"say \"hi\", please"`, `"say \"hi\", please"`},
	} {
		b.wantStatus(s.post(pair[0], "a"), 201)
		if g := s.post(pair[1], "a"); !g.replayed() {
			t.Errorf("%s: %v", pair[1], g)
		}
		b.wantOrders(n + 1)
	}
}

// Method, path, query and body count. Headers do not, since retries change them (dates, trace ids).
func TestT34_OnlyTheRequestCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.once(place, httpkey.Options{})
	send := func(method, target, body string, headers ...string) got {
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+target, strings.NewReader(body))
		b.must(err)
		r.Header.Set("Idempotency-Key", "k")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		g, err := s.do(r)
		b.must(err)
		return g
	}
	b.wantStatus(send("POST", "/a/b?c=d", "e"), 201)
	for _, other := range [][3]string{
		{"PUT", "/a/b?c=d", "e"}, {"POST", "/a/bc?=d", "e"}, {"POST", "/a%2Fb?c=d", "e"}, {"POST", "/a/b?c=", "de"},
		{"POST", "/a/b", "e"}, {"POST", "/a/b?c=d", ""}, {"POST", "/a/b?c=d", "e "},
	} {
		b.wantProblem(send(other[0], other[1], other[2]), 422, "key-reused", false)
	}
	if g := send("POST", "/a/b?c=d", "e", "Traceparent", "00-1-2-03", "X-Signature", "t=1,v1=2", "User-Agent", "another"); !g.replayed() {
		t.Errorf("%v", g)
	}
	b.wantOrders(1)

	canonical := b.once(place, httpkey.Options{Name: "canonical", Fingerprint: func(_ *http.Request, body []byte) (pawl.Fingerprint, error) {
		return pawl.FingerprintJSON(body)
	}})
	b.wantStatus(canonical.post("k", `{"a":1,"b":2}`), 201)
	if g := canonical.post("k", ` {"b": 2, "a": 1.0}`); !g.replayed() {
		t.Errorf("%v", g)
	}
	b.wantProblem(canonical.post("k", `{"a":2}`), 422, "key-reused", false)
	b.wantProblem(canonical.post("k", `no JSON`), 400, "request-unreadable", false)
	b.wantOrders(2)
}

// Secret headers are not replayed, and a caller that is no longer authorized gets no replay.
func TestT39_ReplaysKeepSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	allowed := errors.New("not any more")
	asked := 0
	s := b.once(func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		w.Header().Set("Set-Cookie", "session=secret")
		w.Header().Set("Authorization", "Bearer secret")
		w.Header().Set("X-Request-Id", "1")
		w.Header().Set("X-Kept", "yes")
		w.Header().Set("Keep-Alive", "timeout=5")
		return place(w, r, tx)
	}, httpkey.Options{Headers: []string{"x-kept"}, Authorize: func(*http.Request) error {
		asked++
		return allowed
	}})
	first := s.post("k", "a")
	if asked != 0 || first.header.Get("Set-Cookie") == "" || first.header.Get("Authorization") == "" {
		t.Errorf("the first caller got %v; authorized %d times", first, asked)
	}
	if g := s.post("k", "a"); g.replayed() || strings.Contains(fmt.Sprint(g), "/orders/") {
		t.Errorf("it was given away: %v", g)
	} else {
		b.wantProblem(g, 403, "forbidden", false)
	}
	allowed = nil
	g := s.post("k", "a")
	if g.stored() != first.stored() || !g.replayed() || g.header.Get("X-Kept") != "yes" || asked != 2 {
		t.Errorf("%v", g)
	}
	for _, name := range []string{"Set-Cookie", "Authorization", "Keep-Alive", "X-Request-Id"} {
		if g.header.Get(name) != "" {
			t.Errorf("%s was given again", name)
		}
	}
	b.want("select count(*) from pawl.command where response_headers::text ~* 'secret|cookie|keep-alive'", 0)
}

// A response that is too long to store is not a reason to run again. Retries get its status, its
// location and a note. If it is too long to buffer, the first caller gets the note, too.
func TestT40_ATombstoneIsNotARun(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"stored": 4096, "to store": 4097, "to keep back": 32<<20 + 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			runs := 0
			s := b.once(func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
				runs++
				if _, err := insert(r, tx); err != nil {
					return err
				}
				w.Header().Set("Location", "/orders/1")
				w.WriteHeader(http.StatusCreated)
				_, err := w.Write(bytes.Repeat([]byte("x"), size/2))
				b.must(err)
				if _, err = w.Write(bytes.Repeat([]byte("x"), size-size/2)); (err != nil) != (size > 32<<20) {
					t.Errorf("Write: %v", err)
				}
				return nil
			}, httpkey.Options{MaxResponse: 4096 + len("Location/orders/1Content-Typetext/plain; charset=utf-8")})
			first, again := s.post("k", "a"), s.post("k", "a")
			if whole := len(first.body) == size; first.status != 201 || whole != (size < 32<<20) {
				t.Errorf("the first caller got %d with %d octets", first.status, len(first.body))
			}
			if again.status != 201 || !again.replayed() || again.header.Get("Location") != "/orders/1" {
				t.Errorf("%v", again)
			}
			if size > 4096 {
				b.wantProblem(again, 201, "answer-not-kept", false)
			} else if again.body != first.body {
				t.Errorf("%v", again)
			}
			if runs != 1 {
				t.Errorf("%d runs", runs)
			}
			b.wantOrders(1)
		})
	}
}

// Handlers that break the rules.
func TestOnce_OddHandlers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler httpkey.Handler[pgx.Tx]
		check   func(*bed, got)
		orders  int
	}{
		"writes nothing": {func(_ http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
			_, err := insert(r, tx)
			return err
		}, func(b *bed, g got) {
			if g.status != 200 || g.body != "" {
				b.Errorf("%v", g)
			}
		}, 1},
		"writes twice": {func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusAccepted)
			w.WriteHeader(http.StatusInternalServerError)
			w.Header().Set("Location", "/too/late")
			_, err := io.WriteString(w, "one, ")
			if err := http.NewResponseController(w).Flush(); !errors.Is(err, errors.ErrUnsupported) {
				return fmt.Errorf("flush: %w", err)
			}
			_, _ = io.WriteString(w, "two")
			return errors.Join(err, insertOnly(r, tx))
		}, func(b *bed, g got) {
			if g.status != 202 || g.body != "one, two" || g.header.Get("Location") != "" || g.header.Get("Content-Type") != "text/plain; charset=utf-8" {
				b.Errorf("%v", g)
			}
		}, 1},
		"panics": {func(_ http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
			panic(insertOnly(r, tx))
		}, func(b *bed, g got) { b.wantProblem(g, 500, "not-done", false) }, 0},
		"writes no status": {func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
			err := insertOnly(r, tx)
			w.WriteHeader(7)
			return err
		}, func(b *bed, g got) { b.wantProblem(g, 500, "not-done", false) }, 0},
		"streams": {func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
			if err := insertOnly(r, tx); err != nil {
				return err
			}
			w.(http.Flusher).Flush()
			return nil
		}, func(b *bed, g got) { b.wantProblem(g, 500, "not-done", false) }, 0},
		"asks whether it may stream": {func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
			if err := insertOnly(r, tx); err != nil {
				return err
			}
			return http.NewResponseController(w).Flush()
		}, func(b *bed, g got) { b.wantProblem(g, 500, "not-done", false) }, 0},
		"hijacks": {func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
			if err := insertOnly(r, tx); err != nil {
				return err
			}
			_, _, err := http.NewResponseController(w).Hijack()
			return err
		}, func(b *bed, g got) { b.wantProblem(g, 500, "not-done", false) }, 0},
		"swallows a failed statement": {func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
			err := insertOnly(r, tx)
			_, _ = tx.Exec(r.Context(), "no SQL")
			w.WriteHeader(http.StatusCreated)
			return err
		}, func(b *bed, g got) { b.wantProblem(g, 500, "not-done", false) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			g := b.once(c.handler, httpkey.Options{}).post("k", "a")
			c.check(b, g)
			b.wantOrders(c.orders)
			if c.orders == 0 {
				b.wantLedger("failed_retryable 1")
				b.wantStatus(b.once(place, httpkey.Options{}).post("k", "a"), 201)
			} else if again := b.once(place, httpkey.Options{}).post("k", "a"); again.stored() != g.stored() {
				t.Errorf("%v, then %v", g, again)
			}
			b.wantOrders(1)
		})
	}
}

func insertOnly(r *http.Request, tx pgx.Tx) error {
	_, err := insert(r, tx)
	return err
}

// If a handler aborts the response, its rows are rolled back. A later write fails.
func TestOnce_Aborts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var kept http.ResponseWriter
	s := b.once(func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		kept = w
		if err := insertOnly(r, tx); err != nil {
			return err
		}
		panic(http.ErrAbortHandler)
	}, httpkey.Options{})
	s.Config.ErrorLog = nil
	if g, err := s.try(t.Context(), "k", "a"); err == nil {
		t.Errorf("%v", g)
	}
	if _, err := kept.Write([]byte("late")); !errors.Is(err, httpkey.ErrSealed) {
		t.Errorf("Write: %v", err)
	}
	b.wantOrders(0)
	b.wantStatus(b.once(place, httpkey.Options{}).post("k", "a"), 201)
}

// A body over the limit is not read to its end, and the handler does not run.
func TestOnce_LongBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.once(place, httpkey.Options{MaxBody: 1000})
	b.wantStatus(s.post("fits", strings.Repeat("x", 1000)), 201)
	b.wantProblem(s.post("k", strings.Repeat("x", 1001)), 413, "request-too-large", false)
	b.want("select count(*) from pawl.command", 1)
	b.wantOrders(1)
}

// If a caller leaves before the body is complete, the handler does not run.
func TestOnce_CallerGoneInTheBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.once(place, httpkey.Options{})
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	b.must(err)
	_, err = io.WriteString(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 100\r\n\r\nhalf of")
	b.must(err)
	b.must(conn.Close())
	<-s.done
	b.want("select count(*) from pawl.command", 0)
	b.wantOrders(0)
}

// If a caller leaves while the handler runs, the handler goes on, and the retry gets the answer.
func TestT9_CallerGoneInTheHandler(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	s := b.once(func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		close(entered)
		<-leave
		return place(w, r, tx)
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

// If a caller leaves while it waits for another request, its wait ends.
func TestOnce_CallerGoneInTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	finish := sync.OnceFunc(func() { close(leave) })
	defer finish()
	s := b.once(func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		close(entered)
		<-leave
		return place(w, r, tx)
	}, httpkey.Options{Wait: 10 * minute})
	var first sync.WaitGroup
	first.Go(func() { b.wantStatus(s.post("k", "a"), 201) })
	<-entered
	<-s.begun
	ctx, gone := context.WithCancel(t.Context())
	before := b.pool.Stat().AcquireCount()
	second := make(chan error, 1)
	go func() {
		_, err := s.try(ctx, "k", "a")
		second <- err
	}()
	<-s.begun
	patience.Until(t, "the second has asked, and waits without a connection", func() bool {
		return b.pool.Stat().AcquireCount() > before && b.pool.Stat().AcquiredConns() == 1
	})
	gone()
	if err := <-second; err == nil {
		t.Error("the second got an answer")
	}
	patience.Receive(t, "the one that waited has gone; the first is still there", s.done)
	finish()
	first.Wait()
	b.wantOrders(1)
}

// If the database is unreachable, busy, or lost while the handler runs, nothing takes effect.
func TestT10_NoDatabaseNoRun(t *testing.T) {
	t.Parallel()
	never := func(http.ResponseWriter, *http.Request, pgx.Tx) error {
		t.Error("the handler was entered")
		return nil
	}
	t.Run("away", func(t *testing.T) {
		t.Parallel()
		pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/x?connect_timeout=5")
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		b := &bed{T: t, pool: pool, counters: &pawl.Counters{}}
		b.wantProblem(b.once(never, httpkey.Options{}).post("k", "a"), 503, "unavailable", false)
	})
	t.Run("busy", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for range b.pool.Config().MaxConns {
			c, err := b.pool.Acquire(t.Context())
			b.must(err)
			defer c.Release()
		}
		short := httpkey.Options{AcquireTimeout: 20 * time.Millisecond}
		b.wantProblem(b.once(never, short).post("k", "a"), 503, "unavailable", false)
		db := stdlib.OpenDBFromPool(b.pool)
		defer db.Close()
		b.wantProblem(b.serve(httpkey.OnceSQL(db, tenant, short, func(http.ResponseWriter, *http.Request, *sql.Tx) error {
			t.Error("it ran")
			return nil
		})).post("k", "a"), 503, "unavailable", false)
	})
	t.Run("gone in the handler", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		cut := true
		s := b.once(func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
			if err := place(w, r, tx); err != nil || !cut {
				return err
			}
			cut = false
			_, err := tx.Exec(r.Context(), "select pg_terminate_backend(pg_backend_pid())")
			return err
		}, httpkey.Options{Wait: minute}) // the backend may hold the key a moment longer
		b.wantProblem(s.post("k", "a"), 503, "unavailable", false)
		b.wantOrders(0)
		b.wantStatus(s.post("k", "a"), 201)
		b.wantOrders(1)
	})
}

// If middleware has read the body, the request is refused, because bodies cannot be compared.
func TestRequest_ABodyThatWasRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	handler := httpkey.Once(b.pool, tenant, httpkey.Options{Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}, place)
	for name, read := range map[string]func(r *http.Request){
		"form":   func(r *http.Request) { _ = r.FormValue("csrf") },
		"logger": func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			read(r)
			handler.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader("csrf=x&cents=100")
			if chunked {
				body = io.MultiReader(body) // of unknown length
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
			b.must(err)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Idempotency-Key", "k")
			answer, err := http.DefaultClient.Do(r)
			b.must(err)
			var p httpkey.Problem
			b.must(json.NewDecoder(answer.Body).Decode(&p))
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusInternalServerError || !strings.HasSuffix(p.Type, "#body-taken") || p.NewKeySafe {
				t.Errorf("%s, chunked %v: %+v", name, chunked, p)
			}
		}
	}
	b.wantOrders(0)
}
