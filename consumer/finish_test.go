package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/pawltest"
)

// A source is finished once, last. Handled deliveries are acknowledged before. An abandoned handler
// neither acknowledges nor releases during or after Finish.
func TestConsumer_FinishesItsSourceLast(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.member()
	stuck, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	var waiting atomic.Int32
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if d.Key != "stuck" && d.Key != "stuck too" {
			return apply(ctx, tx, d)
		}
		if waiting.Add(1) == 2 {
			close(stuck)
		}
		<-goOn // ignores its context
		defer func() { ended <- struct{}{} }()
		if d.Key == "stuck" {
			return nil
		}
		return errors.New("not now")
	}
	b.config.Concurrency, b.config.ShutdownTimeout = 4, 10*time.Millisecond
	for n := range 40 {
		b.source.Send(order(n))
	}
	b.source.Send(pawl.Delivery{Key: "stuck"}, pawl.Delivery{Key: "stuck too"})
	stop := b.start()
	<-stuck
	b.until("all others took effect", func() bool { return b.count("select count(*) from effect") == 40 })
	stop()
	if open := b.source.Open(); open != 2 {
		t.Errorf("%d are open after the stop, want the 2 that were left behind", open)
	}
	release()
	<-ended
	<-ended
	b.until("what was left behind is rolled back", func() bool {
		return b.pool.Stat().AcquiredConns() == 0
	})
	if n := m.noted(); n.finished != 1 || n.beside != 0 || len(n.late) > 0 {
		t.Errorf("finished %d times, beside %d calls, and then called %v", n.finished, n.beside, n.late)
	}
	if open := b.source.Open(); open != 2 {
		t.Errorf("%d are open in the end", open)
	}
}

// A slow source is finished after the last receipt: every earlier effect is acknowledged.
func TestConsumer_FinishesItsSourceBehindTheLastReceipt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.member()
	m.info.AckBatch, m.slow = 1, 20*time.Millisecond
	for n := range 40 {
		b.source.Send(order(n))
	}
	stop := b.start()
	b.until("some took effect", func() bool { return b.count("select count(*) from effect") >= 10 })
	stop()
	effects := b.count("select count(*) from effect")
	if n := m.noted(); n.finished != 1 || n.beside != 0 || len(n.late) > 0 || 40-b.source.Open() != effects {
		t.Errorf("finished %d times, beside %d calls, then called %v; %d of %d effects acknowledged", n.finished, n.beside, n.late, 40-b.source.Open(), effects)
	}
}

// If Run cannot start, the source is finished too, and Run refuses to use it again.
func TestConsumer_FinishesItsSourceIfItCannotStart(t *testing.T) {
	t.Parallel()
	empty, err := pgxpool.New(t.Context(), pawltest.URL(t, "drop schema pawl_v1 cascade", "drop schema pawl cascade"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(empty.Close)
	b := setup(t)
	m := b.member()
	b.config.Handler = b.form.handler()
	c, err := consumer.New(empty, b.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); !errors.Is(err, pawl.ErrSchemaMismatch) {
		t.Errorf("run: %v", err)
	}
	if err := c.Run(t.Context()); pawl.CodeOf(err) != pawl.CodeArgumentInvalid || !strings.Contains(err.Error(), "finished") {
		t.Errorf("run again: %v", err)
	}
	if n := m.noted(); n.finished != 1 {
		t.Errorf("finished %d times", n.finished)
	}
}

// An error of Finish is reported.
func TestConsumer_ReportsAFailedFinish(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m, told := b.member(), make(chan pawl.Event, 1)
	m.failure = errors.New("the group is gone")
	b.config.Hooks = pawl.Join(b.config.Hooks, pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Op == "consumer.finish" {
			told <- e
		}
	}})
	b.start()()
	select {
	case e := <-told:
		if e.Kind != pawl.EventError || !errors.Is(e.Err, m.failure) || e.Scope != "orders" {
			t.Errorf("reported %+v", e)
		}
	default:
		t.Error("no error was reported")
	}
}

// After a retryable error Run can be called again: the source is not finished.
func TestConsumer_RunsAgainAfterAnErrorThatMayPass(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.member()
	b.config.Handler = b.form.handler()
	down, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(down.Close)
	c, err := consumer.New(down, b.config)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Run(t.Context()); !pawl.Retryable(err) {
			t.Errorf("run: %v", err)
		}
	}
	if n := m.noted(); n.finished != 0 {
		t.Errorf("finished %d times", n.finished)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ended); err != nil {
		t.Errorf("run after the end: %v", err)
	}
	if n := m.noted(); n.finished != 1 {
		t.Errorf("finished %d times after a stop", n.finished)
	}
}
