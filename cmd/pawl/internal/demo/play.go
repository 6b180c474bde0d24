package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/internal/testbed/checker"
)

// A game is one running demo: its participants and the orders sent.
type game struct {
	Options
	display  Display
	database *database
	broker   broker.Broker
	last     atomic.Pointer[stand]
	sender   *sender    // of payments; nil if there are none
	calls    *providers // the providers that payments call
	crew     *crew
	killer   *killer
	random   *rand.Rand // used by the producer only, after the plan is made
	sent     []checker.Order
}

// newGame prepares everything that the seed decides.
func newGame(o Options, display Display, d *database, b broker.Broker, c *crew) *game {
	random := rand.New(rand.NewPCG(o.Seed, 0))
	g := &game{Options: o, display: display, database: d, broker: b, crew: c, random: random}
	g.sent = makeOrders(random, o.Messages, o.Poison)
	kind, _ := broker.Named(o.Broker) // Run has checked it
	more := slices.Clone(kind.Points)
	if o.Pipeline {
		more = append(more, hopPoints...)
	}
	if o.Payments {
		more = append(more, callPoints...)
	}
	g.killer = newKiller(random, c, o.Kills, more...)
	return g
}

// play sends, kills, waits until all is settled, and judges.
func (g *game) play(ctx context.Context) (Report, error) {
	if err := g.crew.Start(ctx, g.Workers); err != nil {
		return Report{}, err
	}
	watch := g.watch(ctx)
	defer watch.stop()
	began := time.Now()
	g.killer.began = began
	if err := g.run(ctx, watch); err != nil {
		return Report{}, err
	}
	seconds := time.Since(began).Seconds()
	if err := g.crew.Drain(ctx); err != nil {
		return Report{}, err
	}
	unsettled := g.stand(ctx).open() // workers have ended, so the broker counts every message
	watch.stop()

	history, err := g.database.history(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("reading the result: %w", err)
	}
	history.Sent, history.Shipping = g.sent, g.Pipeline
	if g.Payments {
		history.Paying, history.Charges, history.Mails = true, made(g.calls.bank), made(g.calls.mail)
	}
	verdict := checker.Judge(history)
	report := Report{Verdict: verdict, Deliveries: g.deliveries(),
		DuplicatesAbsorbed: g.crew.events.count("duplicate_skipped"), Retried: g.crew.events.count("retryable"),
		Unsettled: unsettled, Kills: len(g.killer.done), KilledAt: g.killer.done,
		Seconds: round(seconds), PerSecond: round(float64(verdict.Effects) / seconds), Seed: g.Seed, Broker: g.Broker, Pipeline: g.Pipeline, Payments: g.Payments}
	if g.Payments {
		report.ChargeRequests, report.MailRequests = g.calls.bank.Requests(), g.calls.mail.Requests()
		report.Unknown, err = g.database.unknown(ctx)
	}
	return report, err
}

// run sends and kills until all is settled. A broken promise must not keep it from ending: if
// nothing moves any more, the rows are judged as they are.
func (g *game) run(ctx context.Context, watch *watcher) error {
	producing := make(chan error, 1)
	go func() { producing <- g.produce(ctx) }()
	progress := stall{since: time.Now()}
	for produced := false; ; {
		now := g.stand(ctx)
		if produced && g.killer.finished() && g.settled(now) {
			return nil
		}
		select {
		case err := <-producing:
			if err != nil {
				return fmt.Errorf("sending: %w", err)
			}
			produced = true
		case err := <-g.crew.Failed():
			return err
		case <-g.database.ended:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		effects := int(watch.effects.Load())
		if progress.none(int64(effects+g.killer.killed()) + g.moved(now)) {
			return g.whyStuck(ctx, produced)
		}
		g.killer.step(ctx, effects, g.Messages-g.Poison, g.empty(now), produced)
	}
}

var errEnded = errors.New("the private PostgreSQL ended by itself")

// whyStuck returns nil if the rows can be judged as they are.
func (g *game) whyStuck(ctx context.Context, produced bool) error {
	if _, err := g.database.waiting(ctx); err != nil {
		return fmt.Errorf("the database stopped answering: %w", err)
	}
	if !produced {
		return fmt.Errorf("nothing moved for %v, and not everything was sent", stallAfter)
	}
	return nil
}

// stallAfter is how long a run may go without an effect, a deletion or a kill before it is judged
// as it is.
const stallAfter = 20 * time.Second

// A stall detects that a number has stopped changing.
type stall struct {
	at    int64
	since time.Time
}

func (s *stall) none(n int64) bool {
	if n != s.at {
		s.at, s.since = n, time.Now()
	}
	return time.Since(s.since) > stallAfter
}

func round(f float64) float64 { return float64(int64(f*100+0.5)) / 100 }
