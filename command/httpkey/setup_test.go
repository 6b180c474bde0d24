package httpkey_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// orders has no unique key, so that a second effect shows.
const orders = "create table orders (id bigint generated always as identity, body text not null)"

// A bed is one database and the servers in front of it.
type bed struct {
	*testing.T
	pool     *pgxpool.Pool
	url      string
	counters *pawl.Counters
}

func setup(t *testing.T) *bed {
	t.Helper()
	return setupOn(t, pawltest.URL(t, orders))
}

func setupOn(t *testing.T, url string) *bed {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &bed{T: t, pool: pool, url: url, counters: &pawl.Counters{}}
}

func (b *bed) hooks() pawl.Hooks {
	return pawl.Join(b.counters.Hooks(), pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Err != nil {
			b.Logf("%s %s %s: %v", e.Kind, e.Op, e.Key, e.Err)
		}
	}})
}

func (b *bed) once(handler httpkey.Handler[pgx.Tx], options httpkey.Options) *site {
	b.Helper()
	options.Hooks = b.hooks()
	return b.serve(httpkey.Once(b.pool, tenant, options, handler))
}

func (b *bed) leased(lease httpkey.Lease, handler httpkey.LeasedHandler, options httpkey.Options) *site {
	b.Helper()
	options.Hooks = b.hooks()
	return b.serve(httpkey.Leased(b.pool, tenant, lease, options, handler))
}

// tenant trusts a header, which only tests may do.
func tenant(r *http.Request) (string, error) {
	if who := r.Header.Get("X-Tenant"); who != "" {
		return who, nil
	}
	return "acme", nil
}

// A site is a server and its client.
type site struct {
	*bed
	*httptest.Server
	// They get one token each for a request that arrived and one that was served.
	begun, done chan struct{}
}

func (b *bed) serve(h http.Handler) *site {
	b.Helper()
	s := &site{bed: b, begun: make(chan struct{}, 10_000), done: make(chan struct{}, 10_000)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.begun <- struct{}{}
		defer func() { s.done <- struct{}{} }()
		h.ServeHTTP(w, r)
	}))
	b.Cleanup(s.Close)
	return s
}

// A got is a response as its caller sees it.
type got struct {
	status int
	header http.Header
	body   string
}

func (g got) String() string { return fmt.Sprintf("%d %v %.300s", g.status, g.header, g.body) }
func (g got) replayed() bool { return g.header.Get("Idempotent-Replayed") == "true" }

// stored returns the parts that must be the same for all callers.
func (g got) stored() string {
	return fmt.Sprint(g.status, g.header["Content-Type"], g.header["Location"], g.header["Etag"], g.header["Content-Length"], g.body)
}

func (s *site) post(key, body string, headers ...string) got {
	s.Helper()
	g, err := s.try(s.Context(), key, body, headers...)
	s.must(err)
	return g
}

// try sends a POST. headers are names and values in turn.
func (s *site) try(ctx context.Context, key, body string, headers ...string) (g got, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/orders?a=1", strings.NewReader(body))
	if err != nil {
		return g, err
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return s.do(r)
}

func (s *site) do(r *http.Request) (g got, err error) {
	client := s.Client()
	if client == nil { // of a server in another process
		client = http.DefaultClient
	}
	response, err := client.Do(r)
	if err != nil {
		return g, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return got{response.StatusCode, response.Header, string(text)}, err
}

func place(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
	id, err := insert(r, tx)
	if err != nil {
		return err
	}
	created(w, id)
	return nil
}

func insert(r *http.Request, tx pgx.Tx) (id int64, err error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	return id, tx.QueryRow(r.Context(), "insert into orders (body) values ($1) returning id", string(body)).Scan(&id)
}

func created(w http.ResponseWriter, id int64) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", id))
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"id":%d, "made":%d}`, id, time.Now().UnixNano())
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) exec(statement string) {
	b.Helper()
	_, err := b.pool.Exec(b.Context(), statement)
	b.must(err)
}

func (b *bed) want(query string, want int) {
	b.Helper()
	var got int
	b.must(b.pool.QueryRow(b.Context(), query).Scan(&got))
	if got != want {
		b.Errorf("%s: %d, want %d", query, got, want)
	}
}

func (b *bed) wantOrders(want int) { b.Helper(); b.want("select count(*) from orders", want) }

func (b *bed) wantLedger(want string) {
	b.Helper()
	var got string
	b.must(b.pool.QueryRow(b.Context(), "select coalesce(string_agg(c.status || ' ' || c.attempts, ', ' order by c.key), '') from pawl.command as c").Scan(&got))
	if got != want {
		b.Errorf("the ledger holds %q, want %q", got, want)
	}
}

// until polls until the query returns want.
func (b *bed) until(query string, want int) {
	b.Helper()
	patience.Until(b, fmt.Sprintf("%d by %s", want, query), func() bool {
		var got int
		b.must(b.pool.QueryRow(b.Context(), query).Scan(&got))
		return got == want
	})
}

func (b *bed) wantStatus(g got, want int) {
	b.Helper()
	if g.status != want {
		b.Errorf("%v, want %d", g, want)
	}
}

// wantProblem checks the kind, the status and new_key_safe of a problem response.
func (b *bed) wantProblem(g got, status int, kind string, newKeySafe bool) {
	b.Helper()
	var p httpkey.Problem
	err := json.Unmarshal([]byte(g.body), &p)
	if err != nil || g.status != status || p.Status != status || !strings.HasSuffix(p.Type, "#"+kind) || p.NewKeySafe != newKeySafe ||
		g.header.Get("Content-Type") != "application/problem+json" {
		b.Errorf("%v (%v), want %d %s, new key safe: %v", g, err, status, kind, newKeySafe)
	}
	if after := g.header.Get("Retry-After"); p.RetryAfter > 0 && after != fmt.Sprint(p.RetryAfter) || p.RetryAfter == 0 && after != "" {
		b.Errorf("Retry-After is %q, retry_after %d", after, p.RetryAfter)
	}
}

// expire moves the ends of all leases into the past.
const expire = "update pawl.command set lease_expires_at = now() - interval '1 minute' where lease_expires_at is not null"

const minute = time.Minute

var errPlain = errors.New("something of ours went wrong")
