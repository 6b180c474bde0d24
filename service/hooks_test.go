package service_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/step"
)

// Steps, commands, handlers of each kind and a user's part call the app's hooks if they have none
// of their own.
func TestApp_GivesHooksToWhatItsPartsCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool := b.pool(b.url, 30)
	var told pawl.Counters
	heard := make(chan string, 100)
	app := b.app(pool, service.Config{Hooks: pawl.Join(told.Hooks(), pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) { heard <- e.Op }})})
	say := func(ctx context.Context, from string) {
		pawl.Hooks{}.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "test." + from})
	}
	source := &pawltest.Source{}
	app.Consumer(consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(
		func(ctx context.Context, tx pgx.Tx, _ consumer.Message[[]byte]) error {
			say(ctx, "consumer")
			_, err := job.Enqueue(ctx, tx, job.Request{Queue: "q", Kind: "k", Payload: []byte("1")})
			return err
		})})
	app.Worker(job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{job.Handle("k", func(ctx context.Context, t job.Task[[]byte]) error {
		say(ctx, "worker")
		_, err := step.Run(ctx, pool, t.Job, step.Step{Name: "s", Recovery: step.Repeatable()}, func(ctx context.Context, _ step.Call) (int, error) {
			say(ctx, "step")
			return 1, nil
		})
		return err
	})}})
	app.Relay(outbox.Config{Sink: outbox.Func(func(ctx context.Context, _ pawl.Message) error {
		say(ctx, "relay")
		return nil
	})})
	app.Add(service.Part{Name: "own", Run: func(ctx context.Context) error {
		say(ctx, "part")
		<-ctx.Done()
		return nil
	}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	tenant := func(*http.Request) (string, error) { return "t", nil }
	app.HTTP(service.HTTPConfig{Listener: listener, MaxConns: 2, Handler: httpkey.Once(pool, tenant, httpkey.Options{}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		say(r.Context(), "request")
		_, err := outbox.Append(r.Context(), tx, outbox.Event{Type: "t", Payload: []byte("{}")})
		return err
	})})
	r := b.run(app)
	source.Send(pawl.Delivery{Key: "1", Payload: []byte("{}")})
	for range 2 { // the second is a replay
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listener.Addr().String(), strings.NewReader("{}"))
		b.must(err)
		request.Header.Set("Idempotency-Key", "k")
		response, err := http.DefaultClient.Do(request)
		b.must(err)
		_ = response.Body.Close()
	}

	missing := map[string]bool{"test.consumer": true, "test.worker": true, "test.step": true, "test.relay": true, "test.part": true, "test.request": true,
		"command.commit": true}
	for len(missing) > 0 {
		delete(missing, patience.Receive(t, fmt.Sprintf("all are told of, but for %v", missing), heard))
	}
	b.until("message, job, step, command and event are done", func() bool { return told.Count(pawl.EventSucceeded) >= 5 })
	b.must(r.end())
	if n := told.Count(pawl.EventSucceeded); n != 5 {
		t.Errorf("told of %d that succeeded, want 5: each once", n)
	}
	if n := b.count("select sum(s.replays) from pawl_v1.suppression_by_scope as s"); n != 1 || told.Count(pawl.EventReplay) != 1 {
		t.Errorf("%d replays in the database and %d events, want 1 each", n, told.Count(pawl.EventReplay))
	}
}
