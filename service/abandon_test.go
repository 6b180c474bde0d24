package service_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/service"
)

// An owner is a source with a resource of its own, such as a membership of a group.
type owner struct {
	pawltest.Source
	finished atomic.Int32
}

func (o *owner) Finish(context.Context) error {
	o.finished.Add(1)
	return nil
}

// If an app fails before it runs its consumers, it finishes their sources once and closes
// listeners. Otherwise the process would keep a membership, and with it partitions that it does not
// serve.
func TestRun_FinishesSourcesThatNeverRan(t *testing.T) {
	t.Parallel()
	taken := func(b *bed) string { return b.listener().Addr().String() }
	for name, c := range map[string]struct {
		conns int32
		cfg   func(*bed) service.Config
		add   func(*bed, *service.App)
		runs  bool
	}{
		"another part cannot be built": {add: func(_ *bed, a *service.App) { a.Worker(job.Config{}) }},
		"the pool is too small":        {conns: 4, add: func(_ *bed, a *service.App) { a.Relay(outbox.Config{Sink: outbox.Func(swallow)}) }},
		"an address is taken": {add: func(b *bed, a *service.App) {
			a.HTTP(service.HTTPConfig{Address: taken(b), Handler: http.NotFoundHandler()})
		}},
		"the health address is taken": {cfg: func(b *bed) service.Config { return service.Config{HealthAddress: taken(b)} }},
		"the schema does not fit":     {add: func(b *bed, _ *service.App) { b.exec("update pawl.migration set api_hash = 'other'") }},
		"an earlier part fails": {add: func(_ *bed, a *service.App) {
			a.Add(service.Part{Name: "broken", Ready: make(chan struct{}), Run: func(context.Context) error { return errors.New("broken") }})
		}},
		"it runs": {runs: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var cfg service.Config
			if c.cfg != nil {
				cfg = c.cfg(b)
			}
			app := b.app(b.pool(b.url, cmp.Or(c.conns, 20)), cfg)
			source, listener := &owner{}, b.listener()
			app.Consumer(consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(ignoreDelivery)})
			app.HTTP(service.HTTPConfig{Listener: listener, Handler: http.NotFoundHandler()})
			if c.add != nil {
				c.add(b, app)
			}
			if c.runs {
				b.must(b.run(app).end())
			} else if err := app.Run(t.Context()); err == nil {
				t.Fatal("it ran")
			}
			if n := source.finished.Load(); n != 1 {
				t.Errorf("the source was finished %d times", n)
			}
			if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
				t.Error("the listener is open")
			}
		})
	}
}
