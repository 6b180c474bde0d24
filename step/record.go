package step

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/internal/txn"
)

// giveBack records that a call was not made because the COMMIT of its plan got no reply, or may not
// be replicated. A COMMIT without a reply may still become durable, so giveBack retries for about
// two seconds while the row is absent. If it fails, the call stays ambiguous, which is safe.
func (t *taking) giveBack(ctx context.Context, fence int64) {
	for range 20 {
		row, err := t.record(ctx, Call{Fence: fence, seen: &seen{}}, contract.StepEndArgs{Outcome: "not_sent"})
		if err != nil || row.Status != "absent" || !pace.Sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
}

// recordFor bounds the recording of an outcome while the database does not answer. An outcome that
// is not recorded has to be found out later, so the wait is long.
const recordFor = 20 * time.Second

// record stores how a call ended, until it gets an answer. Recording twice is no error.
func (t *taking) record(ctx context.Context, c Call, a contract.StepEndArgs) (row contract.StepEndRow, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer cancel()
	reference, exchange := c.seen.noted()
	a.Owner, a.Step, a.Fence, a.Reference = t.args.Owner, t.args.Step, c.Fence, text.Octets(reference, 255)
	if exchange != nil {
		a.Exchange = exchange
	}
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		row, err = contract.StepEnd(ctx, t.pool, a)
		if err == nil || txn.Refused(err) && !pawl.Retryable(err) || !pace.Sleep(ctx, wait) {
			break
		}
	}
	for kind, is := range map[pawl.EventKind]bool{pawl.EventStepTwice: row.Twice, pawl.EventError: row.Contradicts} {
		if is {
			t.emit(ctx, pawl.Event{Kind: kind, Op: "step.end", Err: fmt.Errorf("call %d ended %s, which contradicts an earlier record", a.Fence, a.Outcome)})
		}
	}
	return row, err
}

func (t *taking) emit(ctx context.Context, e pawl.Event) {
	e.Scope, e.Key, e.JobID = t.args.Owner.Scope, t.args.Owner.Key+" "+t.args.Step, t.args.Owner.JobID
	e.Step, e.Provider = t.args.Step, t.step.Provider
	t.step.Hooks.Emit(context.WithoutCancel(ctx), e)
}
