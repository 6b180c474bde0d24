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

// A Delivery is one delivery: its row in the consumer's inbox, and whether it was kept as it
// arrived.
type Delivery struct {
	Consumer    string    `json:"consumer"`
	Key         string    `json:"key"`                  // as the consumer knows it
	Remembered  bool      `json:"remembered"`           // by the inbox; otherwise it was only kept
	Fingerprint string    `json:"fingerprint,omitzero"` // of the payload, in hexadecimal
	ReceivedAt  time.Time `json:"received_at"`
	ProcessedAt time.Time `json:"processed_at,omitzero"` // zero: it has not taken effect
	// the job that owns or owned it; 0: it was never stored
	JobID      int64     `json:"job_id,omitzero"`
	JobStatus  Status    `json:"job_status,omitzero"` // empty: the job no longer exists
	ResultRef  string    `json:"result_ref,omitzero"`
	Kept       bool      `json:"kept"` // as it arrived, in pawl.delivery
	KeptOctets int       `json:"kept_octets,omitzero"`
	ReadAt     time.Time `json:"read_at"` // the database's clock when the row was read

	// by operators: the newest 100, oldest first; read by Get only
	Changes []Change `json:"changes,omitzero" col:"-"`
}

// Ref returns a reference to the delivery as it was read.
func (d Delivery) Ref() DeliveryRef {
	return DeliveryRef{Consumer: d.Consumer, Key: d.Key, ProcessedAt: &d.ProcessedAt}
}

// Deliveries selects a consumer's deliveries that were kept as they arrived and can be replayed. It
// leaves out those kept under keys of Pawl's own, because they had no key, or a known key with
// another payload.
type Deliveries struct {
	Consumer string    // required
	From     time.Time // received at this time or later
	Until    time.Time // received before this; zero: now
	After    string    // only rows after this one: [Page.Next] of the previous page
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

// A DeliveryRef identifies a delivery, and may hold what you saw of it.
type DeliveryRef struct {
	Consumer, Key string
	// ProcessedAt is when the delivery had taken effect, as you saw it; the zero time if it had
	// not. If that has changed, Forget changes nothing. Default: any.
	ProcessedAt *time.Time
}

// Get returns what the inbox remembers of the delivery.
//
// Errors: [pawl.ErrNotFound] if it remembers nothing. Then [DeliveryRef.Changes] may still tell who
// forgot the delivery.
func (r DeliveryRef) Get(ctx context.Context, db pawl.DB) (Delivery, error) {
	rows, err := catalog.Delivery[Delivery](ctx, db, r.Consumer, r.Key)
	d, err := only(rows, err, "delivery.get", fmt.Sprintf("delivery %s that consumer %s remembers", r.Key, r.Consumer))
	if err != nil {
		return d, err
	}
	d.Changes, err = r.Changes(ctx, db)
	return d, err
}

// Changes returns the newest 100 audit records of the delivery, oldest first. It works for
// forgotten deliveries too.
func (r DeliveryRef) Changes(ctx context.Context, db pawl.DB) ([]Change, error) {
	return changes(ctx, db, "inbox", r.Consumer, r.Key)
}

// Forget makes the inbox forget the delivery. If the same message arrives again, it runs as new,
// and its effect may occur twice. Forget is the only way to bypass the inbox. It is refused while a
// job owns the delivery: retry the job, or discard it first. A copy kept in pawl.delivery stays.
//
// Errors: [pawl.ErrScopeInvalid], [pawl.ErrKeyInvalid], [pawl.ErrArgumentInvalid]; a
// [pawl.Retryable] one if an open transaction holds the row for more than 2 s.
func (r DeliveryRef) Forget(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return by.once(ctx, db, "inbox.forget", func(db pawl.DB) (Result, error) {
		row, err := contract.InboxForget(ctx, db, r.Consumer, r.Key, r.ProcessedAt, by.Actor, by.Reason)
		return deliveryResult(row.Outcome, row.Job, row.Status, row.Hint), err
	})
}

// Replay runs the delivery again if it has not taken effect. Its job is retried, as by
// [JobRef.Retry]. If the job was discarded or the delivery forgotten, a new job is created from the
// kept copy. The delivery goes through the inbox as usual. If it has taken effect, Replay is
// refused with [Result.Was] "processed". Copies that the sender sends meanwhile are duplicates. The
// consumer runs the job when it next claims jobs.
//
// Errors: those of Forget.
func (r DeliveryRef) Replay(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return by.once(ctx, db, "inbox.replay", func(db pawl.DB) (Result, error) {
		row, err := contract.InboxReplay(ctx, db, r.Consumer, r.Key, by.Actor, by.Reason)
		result := deliveryResult(row.Outcome, row.Job, row.Status, row.Hint)
		switch {
		case row.ProcessedAt != nil:
			result.Was = "processed"
		case by.dryRun && result.Changed() && result.Was == "":
			result.JobID = 0 // the new job was rolled back
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
		r.Hint = "it has taken effect since you looked, possibly again: look again"
	case r.Outcome == Absent:
		r.Hint = "it never arrived, or is forgotten; use the key that its sender gave it"
	}
	return r
}
