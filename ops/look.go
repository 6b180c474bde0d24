package ops

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

const (
	defaultLimit = 50
	maxLimit     = 1000
	changeLimit  = 100 // records of the audit that Show reads
)

// A Filter selects jobs. The zero value selects the oldest 50 of all.
type Filter struct {
	Queue, Kind string
	Statuses    []Status      // empty: any
	Error       string        // only those whose last error holds this text, as it is
	NoDoubles   bool          // not those of which a retry may take effect a second time: see [Job.MayDouble]
	OlderThan   time.Duration // only those enqueued longer ago than this; 0: any
	After       int64         // only ids above it: the last id of the page before
	Limit       int           // default 50, at most 1000
}

// List returns jobs in the order of their ids. A page shorter than the limit is the last.
//
// Errors: [pawl.ErrArgumentInvalid].
func List(ctx context.Context, db DB, f Filter) ([]Job, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if f.Limit == 0 {
		f.Limit = defaultLimit
	}
	rows, err := contract.JobList(ctx, db, f.args())
	if err != nil {
		return nil, err
	}
	jobs := make([]Job, len(rows))
	for i, r := range rows {
		jobs[i] = jobOf(r)
	}
	return jobs, nil
}

func (f Filter) args() contract.JobListArgs {
	a := contract.JobListArgs{Queue: f.Queue, Kind: f.Kind, Statuses: texts(f.Statuses), Error: f.Error, OlderThan: f.OlderThan,
		After: f.After, Limit: f.Limit}
	if f.NoDoubles {
		a.NotCodes = texts(doubling)
	}
	return a
}

func (f Filter) check() error {
	if f.Limit < 0 || f.Limit > maxLimit {
		return invalid(fmt.Errorf("the limit must lie between 1 and %d, it is %d", maxLimit, f.Limit), "read several pages with After")
	}
	for _, s := range f.Statuses {
		if !slices.Contains(Statuses(), s) {
			return invalid(fmt.Errorf("unknown status %q", s), "known: "+strings.Join(texts(Statuses()), ", "))
		}
	}
	return nil
}

func invalid(why error, next string) error {
	return &pawl.Error{Op: "job.list", Code: pawl.CodeArgumentInvalid, Err: why, Hint: next}
}

// Show returns everything about one job, and false if there is none: then Changes may still tell what became of it.
func Show(ctx context.Context, db DB, id int64) (d Detail, found bool, err error) {
	rows, err := contract.JobShow(ctx, db, id)
	if err != nil {
		return Detail{}, false, err
	}
	for _, r := range rows { // one or none
		d, found = detailOf(r), true
	}
	changes, err := contract.AuditOf(ctx, db, changeLimit, "job", strconv.FormatInt(id, 10))
	if err != nil {
		return Detail{}, false, err
	}
	d.Changes = changesOf(changes)
	steps, err := contract.EffectsOfJob(ctx, db, id, changeLimit)
	if err != nil {
		return Detail{}, false, err
	}
	for _, s := range steps {
		d.Steps = append(d.Steps, effectOf(s))
	}
	return d, found, nil
}

func detailOf(r contract.JobShowRow) Detail {
	d := Detail{Job: jobOf(r.JobRow), Headers: r.Headers, Args: r.Args}
	for _, e := range r.LastErrors {
		d.Errors = append(d.Errors, Error(e))
	}
	if r.LeaseExpiresAt == nil {
		return d
	}
	d.Holder = &Holder{Name: d.Worker, LeaseExpiresAt: *r.LeaseExpiresAt}
	if r.WorkerID != nil {
		d.Holder.WorkerID, d.Holder.SeenAt, d.Holder.Present = *r.WorkerID, *r.SeenAt, *r.Presence
	}
	return d
}

func changesOf(rows []contract.AuditRow) (changes []Change) {
	for _, r := range rows {
		changes = append(changes, Change{ID: r.ID, At: r.At, Actor: r.Actor, Reason: r.Reason, Verb: r.Verb, Before: r.Before, After: r.After})
	}
	return changes
}
