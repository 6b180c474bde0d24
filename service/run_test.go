package service_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schedule"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/transport/webhook"
)

func ignoreDelivery(context.Context, pgx.Tx, consumer.Message[[]byte]) error { return nil }

func ignoreJob(context.Context, pgx.Tx, job.Task[[]byte]) error { return nil }

func swallow(context.Context, pawl.Message) error { return nil }

// Run adds up the connections of all parts. If the pool is too small, the error has the number to
// set, and that number suffices, with defaults and with a user's numbers.
func TestRun_RefusesAPoolThatIsTooSmall(t *testing.T) {
	t.Parallel()
	for name, concurrency := range map[string]int{"defaults": 0, "numbers": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			assemble := func(conns int32) *service.App {
				app := b.app(b.pool(b.url, conns), service.Config{})
				for _, name := range []string{"orders", "refunds"} {
					app.Consumer(consumer.Config{Name: name, Source: &pawltest.Source{}, Handler: consumer.HandleTx(ignoreDelivery), Concurrency: concurrency})
				}
				app.Worker(job.Config{Queues: []job.Queue{{Name: "q", Concurrency: concurrency}}, Handlers: []job.Handler{job.HandleTx("k", ignoreJob)}})
				app.Relay(outbox.Config{Sink: outbox.Func(swallow)})
				app.Schedules(schedule.Config{})
				app.HTTP(service.HTTPConfig{Listener: b.listener(), Handler: http.NotFoundHandler(), MaxConns: 5})
				return app
			}
			err := assemble(4).Run(t.Context())
			var told *pawl.Error
			if !errors.As(err, &told) || told.Code != pawl.CodeArgumentInvalid {
				t.Fatalf("%v", err)
			}
			found := regexp.MustCompile(`pool_max_conns=(\d+)`).FindStringSubmatch(err.Error())
			if found == nil || !strings.Contains(err.Error(), "consumer refunds") {
				t.Fatalf("no number to set: %v", err)
			}
			number, err := strconv.Atoi(found[1])
			b.must(err)
			per := max(1, concurrency)
			if want := 2*(per+1+2) + per + 2 + 2 + 1 + 5; number != want {
				t.Errorf("set %d, want %d", number, want)
			}
			if err := assemble(int32(number - 1)).Run(t.Context()); err == nil {
				t.Errorf("one connection fewer than %d is accepted", number)
			}
			if n := b.count("select count(*) from pawl.worker"); n != 0 {
				t.Errorf("%d workers were started", n)
			}
			b.must(b.run(assemble(int32(number))).end())
		})
	}
}

// A shutdown leaves no work behind. The consumer answers an accepted webhook, a running job
// finishes, and the event that it appends at the end is published. No new request is accepted. A
// user's parts stop with their stage.
func TestRun_StopsInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table hook (v text)", "create table booked (v text)")
	pool := b.pool(b.url, 20)
	const hooks = 4 // one is being handled when the stop begins, the others wait for it
	var mu sync.Mutex
	var order []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	hooked, hookGo := make(chan struct{}, hooks), make(chan struct{})
	worked, workGo := make(chan struct{}), make(chan struct{})

	app := b.app(pool, service.Config{ShutdownTimeout: 5 * time.Minute})
	scheme := webhook.GitHub(webhook.Secret{Name: "s", Value: "a secret that is long enough"})
	verifier, err := webhook.New(webhook.Config{Scheme: scheme})
	b.must(err)
	receiver, err := webhook.NewReceiver(verifier, webhook.ReceiverConfig{ResponseTimeout: time.Minute})
	b.must(err)
	app.Consumer(consumer.Config{Name: "hooks", Source: receiver, Concurrency: 1, RetryConcurrency: 1, Handler: consumer.HandleTx(
		func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
			hooked <- struct{}{}
			<-hookGo
			note("consumer")
			return insert(ctx, tx, "hook", m.Key)
		})})
	app.Worker(job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error {
		close(worked)
		<-workGo
		note("worker")
		if _, err := outbox.Append(ctx, tx, outbox.Event{Type: "booked", AggregateType: "a", AggregateID: "1", Payload: []byte("{}")}); err != nil {
			return err
		}
		return insert(ctx, tx, "booked", t.ID)
	})}})
	app.Schedules(schedule.Config{})
	app.Relay(outbox.Config{Poll: time.Minute, Sink: outbox.Func(func(context.Context, pawl.Message) error {
		note("relay")
		return nil
	})})
	for name, stage := range map[string]service.Stage{"receive": service.StageReceive, "work": service.StageWork, "publish": service.StagePublish} {
		app.Add(service.Part{Name: name, Stage: stage, Run: func(ctx context.Context) error {
			<-ctx.Done()
			note(name)
			return ctx.Err()
		}})
	}
	listener := b.listener()
	var accepted atomic.Int32
	app.HTTP(service.HTTPConfig{Listener: listener, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted.Add(1)
		receiver.ServeHTTP(w, r)
	})})
	r := b.run(app)

	answered := make(chan int, hooks)
	for n := range hooks {
		go func() {
			answer, err := http.DefaultClient.Do(pawltest.SignWebhook(t, scheme, "http://"+listener.Addr().String(), fmt.Sprint("delivery-", n), []byte(`{"ref":"main"}`)))
			if err != nil {
				t.Error(err)
				answered <- 0
				return
			}
			_ = answer.Body.Close()
			answered <- answer.StatusCode
		}()
	}
	_, err = job.Enqueue(t.Context(), b.eyes, job.Request{Queue: "q", Kind: "k", Payload: []byte("1")})
	b.must(err)
	<-hooked
	<-worked
	b.until("all webhooks are accepted", func() bool { return accepted.Load() == hooks })

	r.stop()
	b.until("no request is taken", func() bool {
		conn, err := net.DialTimeout("tcp", listener.Addr().String(), time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if status, text := probe(app.Ready()); status != http.StatusServiceUnavailable || !strings.Contains(text, "stopping") {
		t.Errorf("ready while it stops: %d %s", status, text)
	}
	b.until("the part that receives has stopped", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(order, "receive")
	})
	close(hookGo)
	for range hooks {
		if status := <-answered; status != http.StatusOK {
			t.Errorf("a webhook that was accepted was answered %d", status)
		}
	}
	close(workGo)
	b.must(r.result())
	if n := b.count("select count(*) from hook"); n != hooks {
		t.Errorf("%d hooks took effect", n)
	}
	if n := b.count("select count(*) from booked"); n != 1 {
		t.Errorf("%d jobs took effect", n)
	}
	if n := b.count("select count(*) from pawl.job"); n != 0 {
		t.Errorf("%d jobs and events are left", n)
	}
	if n := b.count("select count(*) from pawl.worker"); n != 0 {
		t.Errorf("%d workers did not leave", n)
	}
	want := []string{"receive", "consumer", "worker", "relay", "publish"}
	if got := slices.Compact(slices.DeleteFunc(slices.Clone(order), func(s string) bool { return s == "work" })); !slices.Equal(got, want) {
		t.Errorf("stopped in the order %v, want %v", got, want)
	}
	if slices.Index(order, "work") < slices.Index(order, "receive") {
		t.Errorf("work stopped before receiving: %v", order)
	}
}

// If a part fails, at its start or later, the app shuts the others down and Run returns the error.
func TestRun_OnePartFails(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, fail := range map[string]func(context.Context, *service.App) error{
		"start": func(context.Context, *service.App) error { return boom },
		"later": func(ctx context.Context, app *service.App) error {
			_ = patience.Poll(ctx, func() bool { status, _ := probe(app.Ready()); return status == http.StatusOK })
			return boom
		},
		"exits its goroutine": func(context.Context, *service.App) error { runtime.Goexit(); return nil },
		"panics":              func(context.Context, *service.App) error { panic(boom) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			app := b.app(b.pool(b.url, 16), service.Config{})
			app.Consumer(consumer.Config{Name: "orders", Source: &pawltest.Source{}, Handler: consumer.HandleTx(ignoreDelivery)})
			app.Worker(job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{job.HandleTx("k", ignoreJob)}})
			listener := b.listener()
			app.HTTP(service.HTTPConfig{Listener: listener, Handler: http.NotFoundHandler()})
			app.Add(service.Part{Name: "mine", Run: func(ctx context.Context) error { return fail(ctx, app) }})
			ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
			defer cancel()
			err := app.Run(ctx)
			if abrupt := name == "exits its goroutine" || name == "panics"; ctx.Err() != nil || err == nil || errors.Is(err, boom) == abrupt || !strings.Contains(err.Error(), "mine") || strings.Contains(err.Error(), "orders") {
				t.Errorf("%v", err)
			}
			if n := b.count("select count(*) from pawl.worker"); n != 0 {
				t.Errorf("%d workers did not leave", n)
			}
			if conn, err := net.Dial("tcp", listener.Addr().String()); err == nil {
				_ = conn.Close()
				t.Error("the server still listens")
			}
		})
	}
}

// No part starts if the schema does not match, an address is taken, or a part's configuration is
// invalid. Run returns each of these errors.
func TestRun_RefusesBeforeItStarts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	worker := func(app *service.App) {
		app.Worker(job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{job.HandleTx("k", ignoreJob)}})
	}
	taken := b.listener()
	for want, add := range map[string]func(*service.App){
		"has no parts": func(*service.App) {},
		"address already in use": func(a *service.App) {
			worker(a)
			a.HTTP(service.HTTPConfig{Address: taken.Addr().String(), Handler: http.NotFoundHandler()})
		},
		"the Handler is missing": func(a *service.App) { worker(a); a.HTTP(service.HTTPConfig{Address: ":0"}) },
		"the Source is missing": func(a *service.App) {
			worker(a)
			a.Consumer(consumer.Config{Name: "c", Handler: consumer.HandleTx(ignoreDelivery)})
		},
		"service.Config.ShutdownTimeout to 1m0s": func(a *service.App) {
			a.Worker(job.Config{Queues: []job.Queue{{Name: "q"}}, ShutdownTimeout: 30 * time.Second, Handlers: []job.Handler{job.HandleTx("k", ignoreJob)}})
		},
		"needs a Name and a Run": func(a *service.App) { worker(a); a.Add(service.Part{Name: "x"}) },
	} {
		app := b.app(b.pool(b.url, 20), service.Config{})
		add(app)
		if err := app.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
		if err := app.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "was called before") {
			t.Errorf("a second Run: %v", err)
		}
	}
	if n := b.count("select count(*) from pawl.worker"); n != 0 {
		t.Errorf("%d workers were started", n)
	}
	b.exec("drop schema pawl_v1 cascade")
	b.exec("drop schema pawl cascade")
	app := b.app(b.pool(b.url, 20), service.Config{})
	worker(app)
	if err := app.Run(t.Context()); !errors.Is(err, pawl.ErrSchemaMismatch) {
		t.Errorf("%v", err)
	}
}

// The app's hooks and presence reach every part. A part's own hooks are called too.
func TestApp_GivesHooksAndPresenceToEveryPart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var all, own pawl.Counters
	app := b.app(b.pool(b.url, 20), service.Config{Hooks: all.Hooks(), Presence: job.Presence{Off: true}})
	source := &pawltest.Source{}
	app.Consumer(consumer.Config{Name: "orders", Source: source, Hooks: own.Hooks(), Handler: consumer.HandleTx(
		func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
			if _, err := outbox.Append(ctx, tx, outbox.Event{Type: "t", AggregateType: "a", AggregateID: "1", Payload: []byte("{}")}); err != nil {
				return err
			}
			_, err := job.Enqueue(ctx, tx, job.Request{Queue: "q", Kind: "k", Payload: []byte("1")})
			return err
		})})
	app.Worker(job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{job.HandleTx("k", ignoreJob)}})
	app.Relay(outbox.Config{Sink: outbox.Func(swallow)})
	r := b.run(app)
	source.Send(pawl.Delivery{Key: "1", Payload: []byte("{}")})
	b.until("three things are done", func() bool { return all.Count(pawl.EventSucceeded) >= 3 })
	if own.Count(pawl.EventSucceeded) != 1 {
		t.Errorf("the consumer's own hooks: %v", &own)
	}
	if n := b.count("select count(*) from pawl.worker where presence"); n != 0 {
		t.Errorf("%d workers hold a presence lock", n)
	}
	b.must(r.end())
}
