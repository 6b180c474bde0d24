package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
)

func sqlstate(code string) error { return &pgconn.PgError{Severity: "ERROR", Code: code, Message: "m"} }

// The next step is the error's hint if there is one, else the code's own.
func TestError_Text(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"job.finish: P4020 fence lost: this attempt no longer holds its work: boom (drop this attempt; its transaction must not commit)": &pawl.Error{Op: "job.finish", Code: pawl.CodeFenceLost, Err: errors.New("boom")},
		"x: boom (try this)": &pawl.Error{Op: "x", Err: errors.New("boom"), Hint: "try this"},
		"x: boom":            &pawl.Error{Op: "x", Err: errors.New("boom")},
		"P4029 the same intent is being processed now (retry after the time in retry_after)":                     pawl.ErrInProgress,
		"job.fail: P4020 fence lost: this attempt no longer holds its work: job 1 is not held, absent (drop it)": pawl.Wrap("job.fail", &pgconn.PgError{Code: "P4020", Message: "job 1 is not held", Detail: "absent", Hint: "drop it"}),
		"job.fail: : no such function (SQLSTATE 42883)":                                                          pawl.Wrap("job.fail", &pgconn.PgError{Code: "42883", Message: "no such function"}),
		"final: boom": pawl.Final(errors.New("boom")),
	} {
		if got := err.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Sentinels match by code through any wrapping, and the cause stays reachable.
func TestError_IsAndAs(t *testing.T) {
	t.Parallel()
	pg := &pgconn.PgError{Code: "P4020", Message: "m"}
	err := fmt.Errorf("outer: %w", pawl.Wrap("job.finish", pg))
	var known *pawl.Error
	var cause *pgconn.PgError
	switch {
	case !errors.Is(err, pawl.ErrFenceLost), errors.Is(err, pawl.ErrInProgress):
		t.Error("the sentinel does not match by code")
	case !errors.As(err, &known) || known.Op != "job.finish" || known.Code != pawl.CodeFenceLost:
		t.Errorf("As found %+v", known)
	case !errors.As(err, &cause) || cause != pg:
		t.Error("the cause is lost")
	case errors.Is(&pawl.Error{Op: "a"}, &pawl.Error{Op: "b"}):
		t.Error("errors without a code match each other")
	}
}

func TestWrap_LeavesNilAndKnownErrorsAlone(t *testing.T) {
	t.Parallel()
	if pawl.Wrap("x", nil) != nil || pawl.Final(nil) != nil {
		t.Error("nil became an error")
	}
	inner := pawl.Wrap("inner", errors.New("boom"))
	if got := pawl.Wrap("outer", inner); got != inner {
		t.Errorf("wrapped twice: %v", got)
	}
	if code := pawl.CodeOf(fmt.Errorf("x: %w", sqlstate("23505"))); code != "23505" {
		t.Errorf("code %q", code)
	}
}

// Retries depend on an error's behaviour, never on its text alone.
func TestError_Behaviour(t *testing.T) {
	t.Parallel()
	_, refused := pgconn.Connect(t.Context(), "postgres://127.0.0.1:1/x?connect_timeout=5")
	type behaviour struct{ retryable, mayHaveHappened, unreachable, final bool }
	for name, c := range map[string]struct {
		err  error
		want behaviour
	}{
		"nil":              {nil, behaviour{}},
		"in progress":      {pawl.ErrInProgress, behaviour{retryable: true}},
		"lock timeout":     {sqlstate("55P03"), behaviour{retryable: true}},
		"lost race":        {sqlstate("40001"), behaviour{retryable: true}},
		"deadlock":         {sqlstate("40P01"), behaviour{retryable: true}},
		"no connection":    {refused, behaviour{retryable: true, unreachable: true}},
		"terminated":       {sqlstate("57P01"), behaviour{retryable: true, unreachable: true}},
		"starting up":      {sqlstate("57P03"), behaviour{retryable: true, unreachable: true}},
		"too many":         {sqlstate("53300"), behaviour{retryable: true, unreachable: true}},
		"read-only":        {sqlstate("25006"), behaviour{retryable: true, unreachable: true}},
		"disk full":        {sqlstate("53100"), behaviour{retryable: true, unreachable: true}},
		"end of file":      {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), behaviour{retryable: true, unreachable: true}},
		"reset":            {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, behaviour{retryable: true, unreachable: true}},
		"network timeout":  {&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}, behaviour{retryable: true, unreachable: true}},
		"our deadline":     {fmt.Errorf("conn closed: %w", context.DeadlineExceeded), behaviour{}},
		"socket deadline":  {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, behaviour{}},
		"cancelled":        {fmt.Errorf("conn closed: %w", context.Canceled), behaviour{}},
		"commit unknown":   {&pawl.Error{Code: pawl.CodeCommitUnknown, Err: io.ErrUnexpectedEOF}, behaviour{mayHaveHappened: true, unreachable: true}},
		"fence lost":       {pawl.ErrFenceLost, behaviour{}},
		"unique violation": {sqlstate("23505"), behaviour{}},
		"check":            {sqlstate("23514"), behaviour{final: true}},
		"bad data":         {pawl.Wrap("x", sqlstate("22P02")), behaviour{final: true}},
		"declared final":   {fmt.Errorf("x: %w", pawl.Final(errors.New("boom"))), behaviour{final: true}},
		"query cancelled":  {sqlstate("57014"), behaviour{}},
		"something":        {errors.New("boom"), behaviour{}},
	} {
		got := behaviour{pawl.Retryable(c.err), pawl.MayHaveHappened(c.err), pawl.Unreachable(c.err), pawl.IsFinal(c.err)}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
