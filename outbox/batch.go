package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/job"
)

// A batch is a claimed event, the head of its aggregate, and the unclaimed events behind it.
type batch struct {
	head     contract.Holding
	index    int // the head's index among the tasks
	messages []pawl.Message
	ids      []int64 // of the events behind the head
	accepted int     // how many messages the sink accepted
	err      error   // why the sink did not accept the next
}

// batchesOf returns a batch for each head among ms, by its index there, or nil if the sink takes no
// batches. Heads without followers are included: finishing one records whether its followers must
// be published singly after a crash.
func (r *Relay) batchesOf(ctx context.Context, ts []job.Task[[]byte], ms []pawl.Message, indexes []int, trials []trial) map[int]*batch {
	r.breaker.mark(trials)
	if r.batchSink == nil {
		return nil
	}
	batches, byHead := map[int]*batch{}, map[int64]*batch{}
	var fit []contract.Holding
	for n, i := range indexes {
		t := ts[i]
		if t.Lane == "" {
			continue
		}
		one := &batch{head: contract.Holding{ID: t.ID, Fence: t.Fence}, index: i, messages: ms[n : n+1 : n+1]}
		batches[n], byHead[t.ID] = one, one
		if t.Attempt == 1 && !trials[n].separate {
			fit = append(fit, one.head)
		}
	}
	if len(fit) == 0 {
		return batches
	}
	var rows []contract.LaneBatchRow
	err := r.limited(ctx, func() (err error) {
		rows, err = contract.LaneBatch(ctx, r.pool, fit, r.share(len(fit)))
		return err
	})
	if err != nil { // each head is published singly
		r.cfg.Hooks.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "outbox.batch", Scope: QueueOf(r.cfg.SinkName), Err: err})
		return batches
	}
	cut := map[int64]bool{}
	for _, row := range rows {
		one := byHead[row.Head]
		m, ok := messageOf(job.Job{ID: row.ID, Kind: row.Kind, Payload: row.Payload, Headers: row.Headers, Attempt: 1, CreatedAt: row.CreatedAt,
			Lane: row.Place.Lane, Position: row.Place.Position}, r.cfg.Source)
		if cut[row.Head] = cut[row.Head] || !ok || r.carried(m) != nil; !cut[row.Head] {
			one.messages, one.ids = append(one.messages, m), append(one.ids, row.ID)
		}
	}
	return batches
}

// limited calls fn, which calls the database about batches. At most batchCalls run at once.
func (r *Relay) limited(ctx context.Context, fn func() error) error {
	select {
	case r.calls <- struct{}{}:
		defer func() { <-r.calls }()
		return fn()
	case <-ctx.Done():
		return pawl.Wrap("outbox.batch", context.Cause(ctx))
	}
}

// share returns how many events to fetch behind each head. The batches of one call of publish stay
// within about ten times [Config.MaxBatch], with at least one event behind each head.
func (r *Relay) share(heads int) int {
	return min(r.cfg.MaxBatch-1, max(1, 10*r.cfg.MaxBatch/heads))
}

// publishBatch makes one call of PublishBatch.
func (r *Relay) publishBatch(ctx context.Context, one *batch, t *trial) {
	err := fault.At("outbox.publish.before")
	if err == nil {
		type reply struct {
			accepted int
			err      error
		}
		var a reply
		a, err = askSink(ctx, func() (a reply) {
			a.accepted, a.err = r.batchSink.PublishBatch(ctx, one.messages)
			return a
		})
		_ = fault.At("outbox.publish.after")
		switch {
		case err != nil:
		case a.accepted < 0 || a.accepted > len(one.messages):
			err = fmt.Errorf("the sink answered that it accepted %d of %d messages", a.accepted, len(one.messages))
		default:
			one.accepted, err = a.accepted, a.err
		}
	}
	switch {
	case one.accepted == len(one.messages):
	case one.accepted > 0:
		one.err = err
	case err == nil:
		t.err = fmt.Errorf("the sink accepted none of %d messages and returned no error", len(one.messages))
	default:
		t.err, t.alone = err, true // one event for the breaker, since one call failed
	}
}

// broken returns trials for the events at which batches ended early. They tell the breaker about
// the sink; the events are not charged.
func broken(batches map[int]*batch) (trials []trial) {
	for _, one := range batches {
		if one.err != nil {
			trials = append(trials, trial{event: one.ids[one.accepted-1], alone: true, err: one.err})
		}
	}
	return trials
}

// finish ends the accepted heads and the accepted events behind them. It sets the heads' verdicts.
func (r *Relay) finish(ctx context.Context, ts []job.Task[[]byte], batches map[int]*batch, verdicts []error) {
	var heads []contract.Holding
	var members []int64
	var done []*batch
	for _, one := range batches {
		if verdicts[one.index] != nil {
			continue
		}
		done, heads = append(done, one), append(heads, one.head)
		if one.accepted > 1 {
			members = append(members, one.ids[:one.accepted-1]...)
		}
	}
	if len(done) == 0 {
		return
	}
	if err := fault.At("job.finish.before"); err != nil {
		for _, one := range done {
			verdicts[one.index] = &contract.Ended{Err: err}
		}
		return
	}
	ends := r.end(ctx, heads, members)
	for _, one := range done {
		verdicts[one.index] = ends[one.head.ID]
	}
}

// endLimit bounds the retries of lane_finish. After that the events are published again.
const endLimit = 10 * time.Second

// end calls lane_finish until the result for each head is known. It does not stop with ctx, because
// the sink has already accepted the events.
func (r *Relay) end(ctx context.Context, heads []contract.Holding, members []int64) map[int64]*contract.Ended {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	ends := make(map[int64]*contract.Ended, len(heads))
	for _, h := range heads {
		ends[h.ID] = &contract.Ended{}
	}
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		var rows []contract.LaneFinishRow
		err := r.limited(ctx, func() (err error) {
			rows, err = contract.LaneFinish(ctx, r.pool, heads, members)
			return err
		})
		for _, row := range rows {
			ends[row.ID].LaneFinishRow = row
		}
		var open []contract.Holding
		for _, h := range heads {
			if e := ends[h.ID]; e.Outcome != "finished" && e.Outcome != "stale" {
				e.Err, e.Asked = err, e.Asked || err != nil
				open = append(open, h)
			}
		}
		if heads = open; len(heads) == 0 || !pace.Sleep(ctx, wait) {
			return ends
		}
	}
}
