package cli

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A connection that broke during a verb is not reported as an unreachable server, because the verb
// may have been done.
func TestUnreachable_InTheMiddle(t *testing.T) {
	t.Parallel()
	c, err := pgx.ParseConfig("postgres://u@127.0.0.1:1/d?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	if why, next := unreachable(c, fmt.Errorf("schedule.run_now: %w", io.ErrUnexpectedEOF)); !strings.Contains(why, "broke before the answer came") || !strings.Contains(next, "may be changed") {
		t.Errorf("%s (%s)", why, next)
	}
	_, refused := pgx.ConnectConfig(t.Context(), c)
	if why, next := unreachable(c, refused); !strings.Contains(why, "cannot reach") || !strings.Contains(next, "start that server") {
		t.Errorf("%s (%s)", why, next)
	}
}
