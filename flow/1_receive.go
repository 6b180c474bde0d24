package flow

import (
	"context"
	crypto "crypto/rand"
	"math/rand/v2"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/txn"
)

// receiveBatch is how many deliveries are asked for at once: SQS's largest batch. It is also the most that can sit
// fetched and not started, which is what a crash leaves invisible until its timeout.
const receiveBatch = 10

// pingPatience bounds one question whether the database is back, and longestProbe the pause until the next.
const (
	pingPatience = 5 * time.Second
	longestProbe = 2 * time.Second
)

// longestBackoff bounds the pause after errors of the source, and after those of the database that a probe does not find.
const longestBackoff = 20 * time.Second

// receive fetches batches and hands them to the handling goroutines, one batch ahead at most, until ctx ends. What was
// fetched and not started by then goes straight back. The last call sees the ended ctx, as [pawl.Source] wants it.
//
// receive: a crash after it costs a redelivery when the source's invisibility ends.
func (f *Flow) receive(ctx context.Context, work chan<- pawl.Delivery) {
	for failures, stopped := 0, false; !stopped; {
		f.awaitDatabase(ctx)
		f.groups.awaitRoom(ctx)
		stopped = ctx.Err() != nil
		batch, err := f.cfg.Source.Receive(ctx, max(receiveBatch, f.cfg.BatchSize))
		for _, d := range f.groups.join(batch) {
			select {
			case work <- d:
			case <-ctx.Done():
				f.giveBack(ctx, 0, f.groups.disband(d)...)
			}
		}
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		failures++
		f.emit(ctx, pawl.Event{Kind: pawl.EventReceiveFailed, Op: "flow.receive", Err: err})
		pause(ctx, jittered(backoff(failures)))
	}
}

// awaitDatabase holds the receiving while the database is away: whatever was received meanwhile would only be given back,
// and the broker counts receives and takes good messages to its dead letters for them (trap T43). If a probe succeeds and our own
// transactions fail all the same, less and less is received.
func (f *Flow) awaitDatabase(ctx context.Context) {
	if !f.away.Load() {
		return
	}
	failures := 0
	for f.probe(ctx) != nil && ctx.Err() == nil {
		f.setbacks.Store(0)
		failures++
		pause(ctx, jittered(min(backoff(failures), longestProbe)))
	}
	f.away.Store(false)
	if failures == 0 {
		if again := int(f.setbacks.Add(1)) - setbacksAtOnce; again > 0 {
			pause(ctx, jittered(backoff(again)))
		}
	}
}

// setbacksAtOnce is how often in a row a probe may succeed while deliveries fail through the database, before receiving slows down.
const setbacksAtOnce = 3

// probe does what a delivery needs of the database: it claims, as the first statement of a transaction that is rolled back, and, if
// there are synchronous standbys, commits.
func (f *Flow) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingPatience)
	defer cancel()
	key := reservedPrefix + "probe/" + crypto.Text()
	pending, err := inbox.Prepare(pawl.Intent{Scope: f.cfg.Consumer, Key: key, Fingerprint: pawl.FingerprintOf()}, inbox.Lane{})
	if err != nil {
		return err
	}
	tx, err := txn.Open(ctx, f.pool, "flow.probe", "", pingPatience, pending.Queue)
	if err != nil {
		return err
	}
	txn.Rollback(ctx, tx)
	return txn.Prove(ctx, f.pool)
}

// giveBack returns deliveries to the source, unacknowledged, those of one ordering key in one call. If even that fails they come back
// by themselves, later.
func (f *Flow) giveBack(ctx context.Context, wait time.Duration, ds ...pawl.Delivery) {
	if len(ds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sourcePatience)
	defer cancel()
	if err := f.cfg.Source.Release(ctx, wait, ds...); err != nil {
		f.emitOf(ctx, ds[0], pawl.Event{Kind: pawl.EventTrouble, Op: "flow.release", Count: len(ds), Err: err})
	}
}

func backoff(failures int) time.Duration {
	return min(250*time.Millisecond<<min(failures-1, 10), longestBackoff)
}

// jittered spreads a pause over its upper half, so that many processes do not return together.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
