package job_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// The server's CONTEXT names the function and line of a rejection, which does not help callers. No
// error, event, log line or job history contains it.
func TestRefusal_ShowsNoFrameOfTheServer(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	_, err := job.Enqueue(t.Context(), pool, job.Request{Queue: "q", Kind: "k"})
	if err != nil {
		t.Fatal(err)
	}
	var refusal error
	var log bytes.Buffer
	var events []pawl.Event
	pawltest.DrainOnce(t, pool, job.Config{
		Queues: []job.Queue{{Name: "q"}},
		Handlers: []job.Handler{job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, _ job.Task[[]byte]) error {
			_, refusal = job.Enqueue(ctx, tx, job.Request{Queue: "q", Kind: "k", Priority: 9})
			return refusal
		})},
		Hooks: pawl.Join(pawl.LogTo(slog.New(slog.NewTextHandler(&log, nil))), pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			if e.Err != nil {
				events = append(events, e)
			}
		}}),
	})
	var pg *pgconn.PgError
	if !errors.As(refusal, &pg) || pg.Code != "P4004" || !strings.Contains(pg.Where, "PL/pgSQL function") {
		t.Fatalf("the refusal is %v, want P4004 with a frame: else there is nothing to hide", refusal)
	}
	var history string
	if err := pool.QueryRow(t.Context(), "select last_errors::text from pawl.job").Scan(&history); err != nil {
		t.Fatal(err)
	}
	if len(events) == 0 {
		t.Error("no event has the refusal")
	}
	shown := map[string]string{"error": refusal.Error(), "log": log.String(), "history": history}
	for _, e := range events {
		shown["event "+string(e.Kind)] = e.Err.Error()
	}
	for where, text := range shown {
		if !strings.Contains(text, "P4004") || strings.Contains(text, "PL/pgSQL") || strings.Contains(text, "CONTEXT") {
			t.Errorf("%s: %s", where, text)
		}
	}
}
