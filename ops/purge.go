package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
)

// The tables from which rows are deleted by age. What is not among them is never purged: sequence gates, because an old number would
// pass; the audit; jobs, lanes and workers, which end otherwise; and the archive, which workers empty.
const (
	TableCommand  = "command"  // finished ones whose memory is over
	TableJobKey   = "job_key"  // those whose memory is over and whose job has no row
	TableStep     = "step"     // finished steps whose memory is over and whose job or command has ended
	TableInbox    = "inbox"    // of one consumer, without a job; consumers purge their own
	TableDelivery = "delivery" // of one consumer; consumers purge their own
	TableReplay   = "replay"   // counts of scopes without a command
	TableFence    = "fence"    // of resources that are not written to any more
)

// Tables returns all of them.
func Tables() []string {
	return []string{TableCommand, TableJobKey, TableStep, TableInbox, TableDelivery, TableReplay, TableFence}
}

// A PurgeRule says what may be forgotten.
type PurgeRule struct {
	Table    string
	Consumer string // of TableInbox and TableDelivery, required there
	// OlderThan is required of TableInbox, TableDelivery, TableReplay and TableFence, whose rows do not know their end. For an
	// inbox it is the promise itself: what comes again later than that runs as new. Of the others it only
	// spares the look at rows younger than it: default 24 h; give the shortest retention in use.
	OlderThan time.Duration
	// Unreported allows an OlderThan below 14 days for an inbox whose consumer never reported for how long it must remember, as programs do that
	// only call the SQL functions: 14 days is the longest that SQS keeps a message.
	Unreported bool
}

const (
	purgeRest  = 4               // times as long as a batch took
	purgeGrace = 5 * time.Second // for the batch in hand, once ctx has ended; and for the record
)

// Purge deletes what may be forgotten, in transactions of as many rows as 20 ms allow (10 to 10,000), and rests after each for four times as long as it took. Rows
// are looked at again as they are deleted, and rows that others have locked are left for the next time, so several may run at once.
// progress, which may be nil, is told after each transaction. What is processing, unknown, or waits for a retry never goes, nor does
// a key whose job has a row. [DryRun] counts in [Tally.Matched] what would be deleted now; that reads the whole table.
//
// Purge writes one record into the audit when it ends, with the count; also if ctx ends or an error stops it after rows were deleted. If ctx
// ends, the batch in hand has 5 s to end. If the process is killed, or the record cannot be written, the batches before stay
// deleted without a record.
//
// Errors: [pawl.ErrArgumentInvalid]; 42501, if the login may not record a purge. Nothing has been deleted then. An error of the record. The
// tally is right beside an error, too.
func Purge(ctx context.Context, db pawl.DB, r PurgeRule, by By, progress func(Tally)) (t Tally, err error) {
	if err := r.Check(); err != nil {
		return t, err
	}
	if by.dryRun {
		due, err := contract.PurgeCount(ctx, db, r.Table, r.args())
		return Tally{DryRun: true, Matched: int(due)}, err
	}
	if err := contract.PurgeAudit(ctx, db, r.Table, r.args(), nil, by.Actor, by.Reason); err != nil {
		return t, err
	}
	t.Done, err = r.batches(ctx, db, progress)
	if err != nil && t.Done == 0 {
		return t, err
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), purgeGrace)
	defer cancel()
	if e := contract.PurgeAudit(late, db, r.Table, r.args(), &t.Done, by.Actor, by.Reason); e != nil {
		return t, errors.Join(err, fmt.Errorf("%d rows were purged without a record: %w", t.Done, e))
	}
	return t, err
}

// batches deletes until nothing is left. The batch in hand outlives ctx: a connection that is cut off in a query could not write the record.
func (r PurgeRule) batches(ctx context.Context, db pawl.DB, progress func(Tally)) (purged int, err error) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(purgeGrace, cancel) })()
	var pace pace.Pace
	for next := ""; ; {
		began := time.Now()
		n, more, err := r.batch(late, db, pace.Rows(), &next)
		pace.Took(time.Since(began))
		purged += n
		if err != nil || !more {
			return purged, err
		}
		if progress != nil {
			progress(Tally{Done: purged})
		}
		select {
		case <-ctx.Done():
			return purged, ctx.Err()
		case <-time.After(purgeRest * time.Since(began)):
		}
	}
}

// batch deletes once, from where the one before has left off, and reports whether there may be more.
func (r PurgeRule) batch(ctx context.Context, db pawl.DB, limit int, next *string) (purged int, more bool, err error) {
	var row contract.PurgeRow
	args := r.args()
	args.Limit, args.Since = limit, *next
	switch r.Table {
	case TableCommand:
		row, err = contract.CommandPurge(ctx, db, args)
	case TableJobKey:
		row, err = contract.JobKeyPurge(ctx, db, args)
	case TableStep:
		row, err = contract.StepPurge(ctx, db, args)
	case TableInbox:
		row, err = contract.InboxPurge(ctx, db, args)
	case TableDelivery:
		row, err = contract.DeliveryPurge(ctx, db, args)
	case TableReplay:
		row.Purged, err = contract.ReplayPurge(ctx, db, r.OlderThan, limit)
	case TableFence:
		row.Purged, err = contract.FencePurge(ctx, db, r.OlderThan, limit)
	}
	*next = row.Next
	return row.Purged, row.Purged+row.Kept == limit, err
}

func (r PurgeRule) args() contract.PurgeArgs {
	return contract.PurgeArgs{Consumer: r.Consumer, OlderThan: r.olderThan(), Unreported: r.Unreported}
}

// olderThan is negative for the default of the function.
func (r PurgeRule) olderThan() time.Duration {
	if r.OlderThan == 0 {
		return -1
	}
	return r.OlderThan
}

// knowsEnd reports whether the rows of the table know when their memory ends.
func (r PurgeRule) knowsEnd() bool {
	return slices.Contains([]string{TableCommand, TableJobKey, TableStep}, r.Table)
}

// Check refuses a rule that names no table, or not what its table needs.
//
// Errors: [pawl.ErrArgumentInvalid].
func (r PurgeRule) Check() error {
	wrong := func(what, next string) error { return invalid("purge", errors.New(what), next) }
	ofConsumer := r.Table == TableInbox || r.Table == TableDelivery
	switch {
	case !slices.Contains(Tables(), r.Table):
		return wrong(fmt.Sprintf("no table %q is purged", r.Table), "known: "+strings.Join(Tables(), ", "))
	case ofConsumer && r.Consumer == "":
		return wrong("rows of "+r.Table+" belong to a consumer, and none is named", "name the consumer")
	case !ofConsumer && r.Consumer != "":
		return wrong("rows of "+r.Table+" belong to no consumer", "name none")
	case r.OlderThan < 0 || r.OlderThan == 0 && !r.knowsEnd():
		return wrong("rows of "+r.Table+" do not know when they may go", "say how old they must be: more than 0")
	}
	return nil
}
