package service_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/service"
)

// A bed is a test's database with the tools to observe it.
type bed struct {
	*testing.T
	url  string
	eyes *pgxpool.Pool // for the test itself
}

func setup(t *testing.T, extra ...string) *bed {
	t.Helper()
	b := &bed{T: t, url: pawltest.URL(t, extra...)}
	b.eyes = b.pool(b.url, 4)
	return b
}

// pool opens a pool. The end of the test does not wait for abandoned handlers.
func (b *bed) pool(url string, conns int32) *pgxpool.Pool {
	b.Helper()
	settings, err := pgxpool.ParseConfig(url)
	b.must(err)
	settings.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(context.Background(), settings)
	b.must(err)
	b.Cleanup(pool.Close)
	return pool
}

func (b *bed) app(pool *pgxpool.Pool, cfg service.Config) *service.App {
	b.Helper()
	app, err := service.New(pool, cfg)
	b.must(err)
	return app
}

// A running is an app that was started.
type running struct {
	*bed
	app   *service.App
	stop  context.CancelFunc
	ended chan error
}

// run starts the app and returns when it is ready.
func (b *bed) run(app *service.App) *running {
	b.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &running{b, app, stop, make(chan error, 1)}
	go func() { r.ended <- app.Run(ctx) }()
	b.Cleanup(stop)
	r.until("the app is ready", func() bool {
		select {
		case err := <-r.ended:
			b.Fatalf("Run ended: %v", err)
		default:
		}
		status, _ := probe(app.Ready())
		return status == http.StatusOK
	})
	return r
}

// end stops the app and returns Run's error.
func (r *running) end() error {
	r.Helper()
	r.stop()
	return r.result()
}

func (r *running) result() error {
	r.Helper()
	return patience.Receive(r, "Run returns", r.ended)
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) until(what string, reached func() bool) {
	b.Helper()
	patience.Until(b, what, reached)
}

func (b *bed) count(query string) (n int) {
	b.Helper()
	b.must(b.eyes.QueryRow(b.Context(), query).Scan(&n))
	return n
}

func (b *bed) exec(statement string) {
	b.Helper()
	_, err := b.eyes.Exec(b.Context(), statement)
	b.must(err)
}

func (b *bed) listener() net.Listener {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	b.Cleanup(func() { _ = l.Close() })
	return l
}

// probe sends a probe as a platform does.
func probe(h http.Handler) (status int, text string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	body, _ := io.ReadAll(w.Body)
	return w.Code, string(body)
}

// insert writes one row.
func insert(ctx context.Context, tx pgx.Tx, table string, value any) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("insert into %s values ($1)", pgx.Identifier{table}.Sanitize()), fmt.Sprint(value))
	return err
}
