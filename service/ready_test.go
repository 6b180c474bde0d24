package service_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/service"
)

// The response of a readiness probe, which each host of a network may send, shows nothing of the
// database's error. An event has the whole error.
func TestReady_SaysNothingOfTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var mu sync.Mutex
	var told []string
	app := b.app(b.pool(b.url, 8), service.Config{Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Op == "service.ready" {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e.Err.Error())
		}
	}}})
	// A worker would say first that it is not registered.
	app.HTTP(service.HTTPConfig{Listener: b.listener(), Handler: http.NotFoundHandler()})
	r := b.run(app)
	admin, err := pgx.Connect(t.Context(), pgtest.ServerURL(t))
	b.must(err)
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	config := b.eyes.Config().ConnConfig
	b.must(pgtest.Shut(t.Context(), admin, config.Database))
	var answer string
	b.until("it says that the database does not answer", func() bool {
		status, text := probe(app.Ready())
		answer = text
		return status == http.StatusServiceUnavailable && strings.Contains(text, "service.ready")
	})
	for _, secret := range []string{config.Host, config.User, config.Database} {
		if secret != "" && strings.Contains(answer, secret) {
			t.Errorf("it says %q, with %q in it", answer, secret)
		}
	}
	if status, text := probe(app.Live()); status != http.StatusOK {
		t.Errorf("it is not live: %s", text)
	}
	mu.Lock()
	said := strings.Join(told, "\n")
	mu.Unlock()
	if !strings.Contains(said, config.Database) {
		t.Errorf("the events say %q, and not which database", said)
	}
	b.must(pgtest.Reopen(t.Context(), admin, config.Database))
	b.until("it is ready again", func() bool { status, _ := probe(app.Ready()); return status == http.StatusOK })
	b.must(r.end())
}
