package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Seen is what the inbox remembers of a delivery.
type Seen struct {
	Consumer, MessageID string // the message id is the key by which the consumer knows the delivery
	Fingerprint         []byte // of the payload, 32 octets
	ReceivedAt          time.Time
	ProcessedAt         time.Time // zero: it has not taken effect
	Job                 int64     // that owns, or owned, the delivery; 0: it never landed
	JobStatus           Status    // empty: there is no such job any more
	ResultRef           string
	Kept                bool // as it came, in pawl.delivery
	KeptOctets          int
	ReadAt              time.Time // the database's clock at the reading
	Changes             []Change  // by hand, oldest first; the newest 100
}

// ShowInbox returns what is remembered of one delivery, and false if nothing is: then Changes may still tell who forgot it.
func ShowInbox(ctx context.Context, db DB, consumer, messageID string) (s Seen, found bool, err error) {
	rows, err := contract.InboxShow(ctx, db, consumer, messageID)
	if err != nil {
		return Seen{}, false, err
	}
	for _, r := range rows { // one or none
		s, found = seenOf(r), true
	}
	s.Consumer, s.MessageID = consumer, messageID
	changes, err := contract.AuditOf(ctx, db, changeLimit, "inbox", consumer, messageID)
	s.Changes = changesOf(changes)
	return s, found, err
}

func seenOf(r contract.InboxRow) Seen {
	s := Seen{Fingerprint: r.Hash, ReceivedAt: r.ReceivedAt, Kept: r.KeptOctets != nil, ReadAt: r.ReadAt}
	if r.ProcessedAt != nil {
		s.ProcessedAt = *r.ProcessedAt
	}
	if r.JobID != nil {
		s.Job = *r.JobID
	}
	if r.JobStatus != nil {
		s.JobStatus = Status(*r.JobStatus)
	}
	if r.ResultRef != nil {
		s.ResultRef = *r.ResultRef
	}
	if s.Kept {
		s.KeptOctets = *r.KeptOctets
	}
	return s
}

// Forgotten is the outcome of [ForgetInbox], beside [Refused] and [Absent].
const Forgotten Outcome = "forgotten"

// An InboxResult is the answer of [ForgetInbox].
type InboxResult struct {
	Outcome Outcome
	Job     int64  // that owns the delivery, if refused
	Was     Status // of that job
	Hint    string // the next step, if refused
}

// Changed reports whether the delivery was forgotten.
func (r InboxResult) Changed() bool { return r.Outcome == Forgotten }

// ForgetInbox forgets one delivery, so that the same message, when it comes again, runs as new: its effect may then be there twice.
// It is the only way past the inbox. While a job owns the delivery it is refused: retry the job, or discard it first. What was kept
// of the delivery as it came stays. [Moved]: it took effect at another time than By.ProcessedAt says.
//
// Errors: [pawl.ErrScopeInvalid], [pawl.ErrKeyInvalid], [pawl.ErrArgumentInvalid], also for By.From, which is about jobs; a
// [pawl.Retryable] one if an open transaction has the row for more than 2 s.
func ForgetInbox(ctx context.Context, db DB, consumer, messageID string, by By) (InboxResult, error) {
	const op = "inbox.forget"
	if err := by.only(op, "ProcessedAt"); err != nil {
		return InboxResult{}, err
	}
	row, err := contract.InboxForget(ctx, db, consumer, messageID, by.ProcessedAt, by.Actor, by.Reason)
	if err != nil {
		return InboxResult{}, err
	}
	r := InboxResult{Outcome: Outcome(row.Outcome), Was: Status(row.Status), Hint: row.Hint}
	if row.Job != nil {
		r.Job = *row.Job
	}
	switch r.Outcome {
	case Forgotten, Refused, Moved, Absent:
		return r, nil
	}
	return InboxResult{}, &pawl.Error{Op: op, Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
}
