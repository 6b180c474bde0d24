package httpkey_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command/httpkey"
)

// Responses do not describe the database, so exactly one event says why it was 500 or 503.
func TestReply_AnEventTellsWhy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	config := b.pool.Config()
	config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	readOnly, err := pgxpool.NewWithConfig(t.Context(), config)
	b.must(err)
	t.Cleanup(readOnly.Close)
	failing := func(http.ResponseWriter, *http.Request, pgx.Tx) error { return errors.New("boom") }
	leased := func(http.ResponseWriter, *http.Request, *httpkey.Attempt) error { return errors.New("boom") }
	for name, c := range map[string]struct {
		handler func(httpkey.Options) http.Handler
		status  int
		why     string
	}{
		"claim": {func(o httpkey.Options) http.Handler { return httpkey.Once(readOnly, tenant, o, place) }, 503, "default_transaction_read_only"},
		"claim, leased": {func(o httpkey.Options) http.Handler {
			return httpkey.Leased(readOnly, tenant, httpkey.Lease{}, o, leased)
		}, 503, "default_transaction_read_only"},
		"handler": {func(o httpkey.Options) http.Handler { return httpkey.Once(b.pool, tenant, o, failing) }, 500, "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			var (
				mu   sync.Mutex
				said []string
			)
			hooks := pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
				if e.Err != nil {
					mu.Lock()
					said = append(said, e.Err.Error())
					mu.Unlock()
				}
			}}
			s := b.serve(c.handler(httpkey.Options{Name: name, Hooks: hooks}))
			if g := s.post("k", "one"); g.status != c.status || strings.Contains(g.body, c.why) {
				t.Errorf("%v, want %d", g, c.status)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(said) != 1 || !slices.ContainsFunc(said, func(err string) bool { return strings.Contains(err, c.why) }) {
				t.Errorf("told: %q, want one with %q", said, c.why)
			}
		})
	}
}
