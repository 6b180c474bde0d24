package conns_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
)

// If BeforeConnect of the pool panics or exits its goroutine, Direct returns an error.
func TestDirect_BeforeConnectPanics(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.ServerURL(t))
	if err != nil {
		t.Fatal(err)
	}
	var end atomic.Pointer[func()]
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		if how := end.Load(); how != nil {
			(*how)()
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	// the pool has its connection and does not call BeforeConnect again
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for want, how := range map[string]func(){"BeforeConnect: panic: boom, at ": func() { panic("boom") }, "exited its goroutine": runtime.Goexit} {
		end.Store(&how)
		if _, err := conns.Direct(t.Context(), pool, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	end.Store(nil)
	conn, err := conns.Direct(t.Context(), pool, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
