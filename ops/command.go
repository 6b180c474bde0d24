package ops

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Command is one command without its stored answer.
type Command struct {
	Scope  string `json:"scope"`
	Key    string `json:"key"`
	Status Status `json:"status"`
	// it cannot end without help: unknown, or processing with an expired lease
	Stale          bool      `json:"stale"`
	Attempts       int       `json:"attempts"`
	Fence          int64     `json:"fence"`
	ClaimedBy      string    `json:"claimed_by,omitzero"`
	LeaseExpiresAt time.Time `json:"lease_expires_at,omitzero"`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
	ExpiresAt      time.Time `json:"expires_at"`               // when the key is forgotten
	ResponseStatus int       `json:"response_status,omitzero"` // of a stored HTTP answer; 0: none
	ResponseOctets int       `json:"response_octets"`
	ResultOctets   int       `json:"result_octets"`
	RefType        string    `json:"result_ref_type,omitzero"`
	RefID          string    `json:"result_ref_id,omitzero"`
	FailureCode    string    `json:"failure_code,omitzero"`
	FailureMessage string    `json:"failure_message,omitzero"`
	Fingerprint    string    `json:"fingerprint"` // of the payload, in hexadecimal
	ReadAt         time.Time `json:"read_at"`     // the database's clock when the row was read

	// by operators: the newest 100, oldest first; read by Get only
	Changes []Change `json:"changes,omitzero" col:"-"`
}

// Ref returns a reference to the command as it was read.
func (c Command) Ref() CommandRef { return CommandRef{Scope: c.Scope, Key: c.Key, Fence: c.Fence} }

// Commands selects commands. The zero value selects all.
type Commands struct {
	Scope    string
	Statuses []Status // empty: any
	Stale    bool     // only those that cannot end without help; reads the whole table
	After    string   // only rows after this one: [Page.Next] of the previous page
	Limit    int      // default 50, at most 1000
}

// List returns commands ordered by scope and key, compared by bytes.
//
// Errors: [pawl.ErrArgumentInvalid].
func (s Commands) List(ctx context.Context, db pawl.DB) (Page[Command], error) {
	const op = "command.list"
	page, err := pageOf(op, s.After, s.Limit, anyText, anyText)
	if err = cmp.Or(err, checkStatuses(op, CommandStatuses(), s.Statuses)); err != nil {
		return Page[Command]{}, err
	}
	rows, err := catalog.Commands[Command](ctx, db, catalog.CommandQuery{Scope: s.Scope, Statuses: texts(s.Statuses), Stale: s.Stale, Page: page})
	return cut(rows, page, func(c Command) []string { return []string{c.Scope, c.Key} }), err
}

// A CommandRef identifies a command, and may hold what you saw of it.
type CommandRef struct {
	Scope, Key string
	Fence      int64 // of the attempt that a verdict concerns, as you saw it; required by Settle
}

// Get returns everything about the command except its stored answer.
//
// Errors: [pawl.ErrNotFound] if the key was never used, or is forgotten.
func (r CommandRef) Get(ctx context.Context, db pawl.DB) (Command, error) {
	rows, err := catalog.Command[Command](ctx, db, r.Scope, r.Key)
	c, err := only(rows, err, "command.get", fmt.Sprintf("command %s in scope %s", r.Key, r.Scope))
	if err != nil {
		return c, err
	}
	c.Changes, err = r.Changes(ctx, db)
	return c, err
}

// Changes returns the newest 100 audit records of the command, oldest first.
func (r CommandRef) Changes(ctx context.Context, db pawl.DB) ([]Change, error) {
	return changes(ctx, db, "command", r.Scope, r.Key)
}

// A CommandVerdict is your finding about a command with an unknown outcome.
type CommandVerdict struct {
	Executed bool // it took effect; otherwise the next call with the key may run it
	// Result, RefType and RefID are the stored answer if it was executed. They are optional. Result
	// is text, usually JSON.
	Result, RefType, RefID string
}

// Settle ends an unknown command by a verdict. Outcomes: [Settled]; [Refused] if the command is not
// unknown; [Moved] if a newer attempt than Fence has begun; [Absent]. A late result of the unknown
// attempt is rejected from now on.
//
// Errors: [pawl.ErrArgumentInvalid], also for a missing Fence; a [pawl.Retryable] one if an open
// transaction holds the row for more than 2 s.
func (r CommandRef) Settle(ctx context.Context, db pawl.DB, v CommandVerdict, by By) (Result, error) {
	const op = "command.settle"
	if r.Fence == 0 {
		return Result{}, noFence(op, "CommandRef.Fence", "Command.Fence")
	}
	return by.once(ctx, db, op, func(db pawl.DB) (Result, error) {
		row, err := contract.CommandSettle(ctx, db, contract.CommandSettleArgs{Scope: r.Scope, Key: r.Key, Fence: r.Fence, Executed: v.Executed,
			Result: v.Result, RefType: v.RefType, RefID: v.RefID, Actor: by.Actor, Reason: by.Reason})
		result := Result{Outcome: Outcome(row.Outcome), Fence: row.Fence}
		switch result.Outcome {
		case Settled:
			result.Was, result.Now = string(StatusUnknown), row.Status
		case Refused:
			result.Was, result.Hint = row.Status, "only an unknown command needs a verdict"
		case Moved:
			result.Was, result.Hint = row.Status, fmt.Sprintf("another attempt has begun since: its fence is %d; find out about that one", row.Fence)
		case Absent:
			result.Hint = "list the commands that are stale"
		}
		return result, err
	})
}

func noFence(op, field, shown string) error {
	return invalid(op, fmt.Errorf("the verdict names no fence"), fmt.Sprintf("set %s to the value that you saw: see %s", field, shown))
}
