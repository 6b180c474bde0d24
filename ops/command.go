package ops

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A CommandStatus is where a command stands.
type CommandStatus string

// The statuses.
const (
	CommandProcessing      CommandStatus = "processing"
	CommandSucceeded       CommandStatus = "succeeded"
	CommandFailedRetryable CommandStatus = "failed_retryable" // the next call with the key runs it again
	CommandFailedFinal     CommandStatus = "failed_final"
	CommandUnknown         CommandStatus = "unknown" // nobody knows whether it took effect: see SettleCommand
)

// CommandStatuses returns all of them.
func CommandStatuses() []CommandStatus {
	return []CommandStatus{CommandProcessing, CommandSucceeded, CommandFailedRetryable, CommandFailedFinal, CommandUnknown}
}

// A CommandID names a command.
type CommandID struct{ Scope, Key string }

// A Command is one command without what it answers.
type Command struct {
	CommandID
	Status               CommandStatus
	Stale                bool // nobody can finish it without help: unknown, or processing with its lease over
	Attempts             int
	Fence                int64
	ClaimedBy            string
	Fingerprint          []byte // of the payload, 32 octets
	LeaseExpiresAt       time.Time
	CreatedAt, UpdatedAt time.Time
	ExpiresAt            time.Time // end of the memory
	ResponseStatus       int       // of a stored HTTP answer; 0: none
	ResponseOctets       int
	ResultOctets         int
	RefType, RefID       string
	FailureCode, Failure string
	ReadAt               time.Time // the database's clock at the reading
}

// A CommandFilter selects commands. The zero value selects the first 50 of all.
type CommandFilter struct {
	Scope  string
	Status CommandStatus
	Stale  bool      // only those that nobody can finish without help; reads the whole table
	After  CommandID // only those behind it, by octets: the last of the page before
	Limit  int       // default 50, at most 1000
}

// Commands returns commands in the order of scope and key. A page shorter than the limit is the last.
//
// Errors: [pawl.ErrArgumentInvalid].
func Commands(ctx context.Context, db DB, f CommandFilter) ([]Command, error) {
	if err := (Filter{Limit: f.Limit}).check(); err != nil {
		return nil, err
	}
	if f.Status != "" && !slices.Contains(CommandStatuses(), f.Status) {
		return nil, &pawl.Error{Op: "command.list", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("unknown status %q", f.Status),
			Hint: "known: " + strings.Trim(fmt.Sprint(CommandStatuses()), "[]")}
	}
	if f.Limit == 0 {
		f.Limit = defaultLimit
	}
	rows, err := contract.CommandList(ctx, db, contract.CommandListArgs{Scope: f.Scope, Status: string(f.Status), Stale: f.Stale,
		After: [2]string{f.After.Scope, f.After.Key}, Limit: f.Limit})
	if err != nil {
		return nil, err
	}
	commands := make([]Command, len(rows))
	for i, r := range rows {
		commands[i] = commandOf(r)
	}
	return commands, nil
}

// ShowCommand returns one command with what operators did, and false if there is none: then changes may still tell something.
func ShowCommand(ctx context.Context, db DB, id CommandID) (c Command, changes []Change, found bool, err error) {
	rows, err := contract.CommandShow(ctx, db, id.Scope, id.Key)
	if err != nil {
		return Command{}, nil, false, err
	}
	for _, r := range rows { // one or none
		c, found = commandOf(r), true
	}
	audit, err := contract.AuditOf(ctx, db, changeLimit, "command", id.Scope, id.Key)
	return c, changesOf(audit), found, err
}

func commandOf(r contract.CommandRow) Command {
	c := Command{CommandID: CommandID{r.Scope, r.Key}, Status: CommandStatus(r.Status), Stale: r.Stale, Attempts: r.Attempts, Fence: r.Fence,
		ClaimedBy: textOf(r.ClaimedBy), Fingerprint: r.Hash, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, ExpiresAt: r.ExpiresAt,
		RefType: textOf(r.RefType), RefID: textOf(r.RefID), FailureCode: textOf(r.FailureCode), Failure: textOf(r.FailureMessage),
		ResponseStatus: r.ResponseStatus, ResponseOctets: r.ResponseOctets, ResultOctets: r.ResultOctets, ReadAt: r.ReadAt}
	if r.LeaseExpiresAt != nil {
		c.LeaseExpiresAt = *r.LeaseExpiresAt
	}
	return c
}

// A CommandVerdict is what somebody found out about a command of which nobody knew whether it took effect.
type CommandVerdict struct {
	Landed bool // it took effect. Otherwise the next call with the key may run it
	// Result, RefType and RefID are the answer from now on, if it landed; optional. Result is text, usually JSON.
	Result, RefType, RefID string
}

// SettleCommand ends an unknown command by a verdict: [Settled], [Refused] if it is not unknown, [Moved] if another attempt has begun since
// the one with By.Fence, or [Absent]. The attempt that fell silent is refused from now on. By.Fence is required: [Command.Fence] as you saw
// it when you found out.
//
// Errors: [pawl.ErrArgumentInvalid], also for By.From, which is about jobs; a [pawl.Retryable] one if an open transaction has the
// row for more than 2 s.
func SettleCommand(ctx context.Context, db DB, id CommandID, v CommandVerdict, by By) (Outcome, error) {
	const op = "command.settle"
	if err := by.only(op, "Fence"); err != nil {
		return "", err
	}
	if by.Fence == 0 {
		return "", noFence(op, "see Command.Fence")
	}
	outcome, err := contract.CommandSettle(ctx, db, contract.CommandSettleArgs{Scope: id.Scope, Key: id.Key, Fence: by.Fence, Landed: v.Landed,
		Result: v.Result, RefType: v.RefType, RefID: v.RefID, Actor: by.Actor, Reason: by.Reason})
	if err != nil {
		return "", err
	}
	switch Outcome(outcome) {
	case Settled, Refused, Moved, Absent:
		return Outcome(outcome), nil
	}
	return "", &pawl.Error{Op: op, Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", outcome)}
}
