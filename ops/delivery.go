package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Delivery is what is known of one delivery: what the inbox of its consumer remembers, and whether it was kept as it came.
type Delivery struct {
	Consumer    string    `json:"consumer"`
	Key         string    `json:"key"`                  // by which the consumer knows it
	Remembered  bool      `json:"remembered"`           // by the inbox; else it was kept only
	Fingerprint string    `json:"fingerprint,omitzero"` // of the payload, in hexadecimal
	ReceivedAt  time.Time `json:"received_at"`
	ProcessedAt time.Time `json:"processed_at,omitzero"` // zero: it has not taken effect
	JobID       int64     `json:"job_id,omitzero"`       // that owns, or owned, the delivery; 0: it was never stored
	JobStatus   Status    `json:"job_status,omitzero"`   // empty: there is no such job any more
	ResultRef   string    `json:"result_ref,omitzero"`
	Kept        bool      `json:"kept"` // as it came, in pawl.delivery
	KeptOctets  int       `json:"kept_octets,omitzero"`
	ReadAt      time.Time `json:"read_at"` // the database's clock at the reading

	Changes []Change `json:"changes,omitzero" col:"-"` // by hand: the newest 100, oldest first; read by Get only
}

// Ref names the delivery as it was read.
func (d Delivery) Ref() DeliveryRef {
	return DeliveryRef{Consumer: d.Consumer, Key: d.Key, ProcessedAt: &d.ProcessedAt}
}

// Deliveries selects the deliveries of a consumer that were kept as they came: what can be replayed of an interval. What was kept under
// keys of Pawl's own, because it had no key or a known one with another payload, is not among them.
type Deliveries struct {
	Consumer string    // required
	From     time.Time // received at this time or later
	Until    time.Time // received before this; zero: now
	After    string    // only those behind this one: [Page.Next] of the page before
	Limit    int       // default 50, at most 1000
}

// List returns deliveries in the order in which they were received.
//
// Errors: [pawl.ErrArgumentInvalid], also if the interval is empty.
func (s Deliveries) List(ctx context.Context, db pawl.DB) (Page[Delivery], error) {
	const op = "delivery.list"
	if s.Until.IsZero() {
		s.Until = time.Now()
	}
	page, err := pageOf(op, s.After, s.Limit, aTime, anyText)
	switch {
	case err != nil:
	case s.Consumer == "":
		err = invalid(op, errors.New("deliveries belong to a consumer, and none is given"), "set Consumer")
	case !s.From.Before(s.Until):
		err = invalid(op, errors.New("the interval is empty"), "let From be before Until")
	}
	if err != nil {
		return Page[Delivery]{}, err
	}
	rows, err := catalog.Deliveries[Delivery](ctx, db, catalog.DeliveryQuery{Consumer: s.Consumer, From: s.From, Until: s.Until, Page: page})
	return cut(rows, page, func(d Delivery) []string { return []string{instant(d.ReceivedAt), d.Key} }), err
}

// A DeliveryRef names a delivery, and what you saw of it.
type DeliveryRef struct {
	Consumer, Key string
	// ProcessedAt is when it had taken effect, as you saw it, and the zero time if it had not: if that is not so any more, Forget changes
	// nothing. Default: any.
	ProcessedAt *time.Time
}

// Get returns what is remembered of the delivery.
//
// Errors: [pawl.ErrNotFound] if nothing is. Then [DeliveryRef.Changes] may still say who forgot it.
func (r DeliveryRef) Get(ctx context.Context, db pawl.DB) (Delivery, error) {
	rows, err := catalog.Delivery[Delivery](ctx, db, r.Consumer, r.Key)
	d, err := only(rows, err, "delivery.get", fmt.Sprintf("delivery %s that consumer %s remembers", r.Key, r.Consumer))
	if err != nil {
		return d, err
	}
	d.Changes, err = r.Changes(ctx, db)
	return d, err
}

// Changes returns what was done with the delivery by hand: the newest 100 records, oldest first. It knows deliveries that were forgotten, too.
func (r DeliveryRef) Changes(ctx context.Context, db pawl.DB) ([]Change, error) {
	return changes(ctx, db, "inbox", r.Consumer, r.Key)
}

// Forget forgets the delivery, so that the same message, when it comes again, runs as new: its effect may then be there twice.
// It is the only way past the inbox. While a job owns the delivery it is refused: retry the job, or discard it first. What was kept
// of the delivery as it came stays.
//
// Errors: [pawl.ErrScopeInvalid], [pawl.ErrKeyInvalid], [pawl.ErrArgumentInvalid]; a [pawl.Retryable] one if an open transaction has the
// row for more than 2 s.
func (r DeliveryRef) Forget(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return by.once(ctx, db, "inbox.forget", func(db pawl.DB) (Result, error) {
		row, err := contract.InboxForget(ctx, db, r.Consumer, r.Key, r.ProcessedAt, by.Actor, by.Reason)
		return deliveryResult(row.Outcome, row.Job, row.Status, row.Hint), err
	})
}

// Replay has the delivery tried again if it has not taken effect. If it has a job, that is retried, as by [JobRef.Retry]; if the job was discarded,
// or the delivery forgotten, a new job is made of what was kept of it. It goes through the inbox like every delivery: what took
// effect is refused, with [Result.Was] "processed", and what its sender sends meanwhile is a duplicate. Its consumer runs it as soon as it looks.
//
// Errors: as of Forget.
func (r DeliveryRef) Replay(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return by.once(ctx, db, "inbox.replay", func(db pawl.DB) (Result, error) {
		row, err := contract.InboxReplay(ctx, db, r.Consumer, r.Key, by.Actor, by.Reason)
		result := deliveryResult(row.Outcome, row.Job, row.Status, row.Hint)
		switch {
		case row.ProcessedAt != nil:
			result.Was = "processed"
		case by.dryRun && result.Changed() && result.Was == "":
			result.JobID = 0 // a new one, which was taken back
		}
		return result, err
	})
}

func deliveryResult(outcome string, job *int64, was, hint string) Result {
	r := Result{Outcome: Outcome(outcome), Was: was, Hint: hint}
	if job != nil {
		r.JobID = *job
	}
	switch {
	case r.Outcome == Moved:
		r.Hint = "it has taken effect since you looked, or anew: look again"
	case r.Outcome == Absent:
		r.Hint = "it never came, or longer ago than is remembered; its key is the one that its sender gave it"
	}
	return r
}
