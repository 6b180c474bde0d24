package txn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
)

func refusal(code string) error {
	// the server translates Severity
	return &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: code}
}

// A failed COMMIT had no effect only if the server said so. Every other failure is unknown;
// pgconn.SafeToRetry does not count.
func TestClassify_OnlyTheServerSaysNo(t *testing.T) {
	t.Parallel()
	fatal := &pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01"}
	for name, c := range map[string]struct {
		err  error
		want pawl.Code
	}{
		"unique violation":      {refusal("23505"), "23505"},
		"foreign key":           {refusal("23503"), "23503"},
		"serialization failure": {refusal("40001"), "40001"},
		"deadlock":              {refusal("40P01"), "40P01"},
		"wrapped":               {fmt.Errorf("commit: %w", refusal("23514")), "23514"},
		"rolled back":           {pgx.ErrTxCommitRollback, "25P02"},
		"closed before":         {pgx.ErrTxClosed, "25P02"},
		"terminated":            {fatal, pawl.CodeCommitUnknown},
		"crash":                 {&pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "57P02"}, pawl.CodeCommitUnknown},
		"panic":                 {&pgconn.PgError{SeverityUnlocalized: "PANIC", Code: "XX000"}, pawl.CodeCommitUnknown},
		"end of file":           {io.ErrUnexpectedEOF, pawl.CodeCommitUnknown},
		"reset":                 {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, pawl.CodeCommitUnknown},
		"timeout":               {context.DeadlineExceeded, pawl.CodeCommitUnknown},
		"cancelled":             {context.Canceled, pawl.CodeCommitUnknown},
		"conn closed":           {errors.New("conn closed"), pawl.CodeCommitUnknown},
	} {
		got := classify("x.commit", c.err)
		if pawl.CodeOf(got) != c.want || !errors.Is(got, c.err) {
			t.Errorf("%s: %v, want code %s around the cause", name, got, c.want)
		}
		if pawl.MayHaveHappened(got) != (c.want == pawl.CodeCommitUnknown) {
			t.Errorf("%s: MayHaveHappened is %v", name, pawl.MayHaveHappened(got))
		}
	}
	if err := classify("x.commit", nil); err != nil {
		t.Errorf("success: %v", err)
	}
}

// A statement sent on its own had no effect if the server refused it or was never reached.
func TestRefused_NeedsAnAnswer(t *testing.T) {
	t.Parallel()
	_, unreachable := pgconn.Connect(t.Context(), "postgres://127.0.0.1:1/x?connect_timeout=5")
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"error":       {refusal("P4004"), true},
		"unreachable": {unreachable, true},
		"terminated":  {&pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "57P01"}, false},
		"end of file": {io.ErrUnexpectedEOF, false},
		"scan":        {pgx.ScanArgError{Err: errors.New("cannot scan")}, false},
		"cancelled":   {context.Canceled, false},
	} {
		if got := Refused(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
