package ops

import (
	"cmp"
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

// The tables from which Purge deletes rows by age. Others are never purged: sequence gates, because
// an old number would pass; the audit; jobs, lanes and workers, which end otherwise; and the
// archive, which workers empty.
const (
	TableCommand = "command" // finished commands whose key has expired
	TableJobKey  = "job_key" // expired keys whose job has no row
	// finished steps that have expired and whose job or command has ended
	TableStep     = "step"
	TableInbox    = "inbox"    // of one consumer, without a job; consumers purge their own
	TableDelivery = "delivery" // of one consumer; consumers purge their own
	TableReplay   = "replay"   // counts of scopes without a command
	TableFence    = "fence"    // of resources that are no longer written to
)

// Tables returns the tables from which [Purge] deletes rows by age: [TableCommand] and the others.
func Tables() []string {
	return []string{TableCommand, TableJobKey, TableStep, TableInbox, TableDelivery, TableReplay, TableFence}
}

// A PurgeRule says which rows may be deleted.
type PurgeRule struct {
	Table    string
	Consumer string // for TableInbox and TableDelivery, required there
	// OlderThan is required for TableInbox, TableDelivery, TableReplay and TableFence, whose rows
	// do not store when they expire. For an inbox it is the memory window itself: a message that
	// arrives again later runs as new. For the other tables it only skips younger rows: give the
	// shortest retention in use; default 24 h.
	OlderThan time.Duration
	// Unreported allows an OlderThan below 14 days for an inbox whose consumer never reported how
	// long it must remember, as programs that only call the SQL functions do. SQS keeps a message
	// for at most 14 days.
	Unreported bool
}

const (
	purgeRest  = 4               // multiple of a batch's duration
	purgeGrace = 5 * time.Second // for the running batch after ctx has ended, and for the record
)

// Purge deletes expired rows, in transactions of as many rows as 20 ms allow (10 to 10,000). After
// each it pauses for four times its duration. Rows are checked again when they are deleted, and
// locked rows are skipped, so several may run at once. progress, which may be nil, is called after
// each transaction. Purge never deletes what is processing, unknown, or waits for a retry, nor a
// key whose job has a row. [DryRun] counts in [Tally.Matched] the rows that would be deleted now,
// which reads the whole table.
//
// When it ends, Purge writes one audit record with the count, even if ctx ends or an error stops it
// after rows were deleted. If ctx ends, the running batch has 5 s to finish. If the process is
// killed, or the record cannot be written, the deleted rows have no record.
//
// Errors: [pawl.ErrArgumentInvalid], or 42501 if the login may not record a purge; then no row was
// deleted. An error of the record. The tally is correct even with an error.
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

// batches deletes until no row is left. A running batch continues after ctx ends, because a
// connection on which a query was cancelled could not write the record.
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

// batch deletes once, starting where the previous batch ended, and reports whether there may be
// more.
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
	// A negative value is the function's default.
	return contract.PurgeArgs{Consumer: r.Consumer, OlderThan: cmp.Or(r.OlderThan, -1), Unreported: r.Unreported}
}

// knowsEnd reports whether rows of the table store when they expire.
func (r PurgeRule) knowsEnd() bool {
	return slices.Contains([]string{TableCommand, TableJobKey, TableStep}, r.Table)
}

// Check returns an error if the rule lacks a table, or a value that its table needs.
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
	case r.OlderThan < 0:
		return wrong(fmt.Sprintf("the OlderThan must not be negative, it is %v", r.OlderThan), "say how old the rows must be: more than 0")
	case r.OlderThan == 0 && !r.knowsEnd():
		return wrong("rows of "+r.Table+" do not store when they expire", "say how old they must be: more than 0")
	}
	return nil
}
