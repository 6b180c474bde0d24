package ops

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// The outcomes of [ReplayInbox], beside [Refused] and [Absent].
const (
	Replayed    Outcome = "replayed"
	WouldReplay Outcome = "would_replay" // nothing was changed; asked only
)

// A ReplayResult is the answer of [ReplayInbox].
type ReplayResult struct {
	Outcome     Outcome
	Job         int64     // that owns the delivery; 0: there is none yet, or none any more
	Was         Status    // of that job before; empty: it is a new one
	ProcessedAt time.Time // the delivery took effect then, if that is why it was refused
	Hint        string    // the next step, if refused
}

// Changed reports whether the delivery is tried again.
func (r ReplayResult) Changed() bool { return r.Outcome == Replayed }

// ReplayInbox has a delivery tried again that has not taken effect. If it has a job, that is retried, as by [Retry]; if the job was discarded,
// or the delivery forgotten ([ForgetInbox]), a new job is made of what was kept of it. It goes through the inbox like every delivery: what took
// effect is refused, and what its sender sends meanwhile is a duplicate. Its consumer runs it as soon as it looks.
//
// dryRun says what would be done, and does nothing.
//
// Errors: as of [ForgetInbox].
func ReplayInbox(ctx context.Context, db DB, consumer, messageID string, dryRun bool, by By) (ReplayResult, error) {
	const op = "inbox.replay"
	if err := by.only(op); err != nil {
		return ReplayResult{}, err
	}
	row, err := contract.InboxReplay(ctx, db, consumer, messageID, dryRun, by.Actor, by.Reason)
	if err != nil {
		return ReplayResult{}, err
	}
	r := ReplayResult{Outcome: Outcome(row.Outcome), Was: Status(row.Status), Hint: row.Hint}
	if row.Job != nil {
		r.Job = *row.Job
	}
	if row.ProcessedAt != nil {
		r.ProcessedAt = *row.ProcessedAt
	}
	switch r.Outcome {
	case Replayed, WouldReplay, Refused, Absent:
		return r, nil
	}
	return ReplayResult{}, &pawl.Error{Op: op, Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
}

// A Kept is a delivery that was kept as it came.
type Kept struct {
	MessageID  string
	ReceivedAt time.Time
}

// KeptInbox yields the deliveries of a consumer that were kept from one time until before another, oldest first: what can be replayed of an
// interval. What was kept under keys of Pawl's own, because it had no key or a known one with another payload, is not among them. It reads
// page by page, so others may come and go meanwhile.
//
// Errors: [pawl.ErrArgumentInvalid] if the interval is empty.
func KeptInbox(ctx context.Context, db DB, consumer string, from, until time.Time) iter.Seq2[Kept, error] {
	return func(yield func(Kept, error) bool) {
		if !from.Before(until) {
			yield(Kept{}, &pawl.Error{Op: "inbox.kept", Code: pawl.CodeArgumentInvalid, Err: errors.New("the interval is empty")})
			return
		}
		const page = 500
		for after := (contract.DeliveryRow{}); ; {
			rows, err := contract.DeliveryList(ctx, db, consumer, from, until, after, page)
			if err != nil {
				yield(Kept{}, err)
				return
			}
			for _, r := range rows {
				if !yield(Kept(r), nil) {
					return
				}
				after = r
			}
			if len(rows) < page {
				return
			}
		}
	}
}
