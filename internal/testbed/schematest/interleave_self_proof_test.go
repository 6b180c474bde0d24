//go:build proof

package schematest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/pgtest"
)

const zero = "update counter set n = 0"

// sum fails unless the counters add up to want.
func sum(want int) func(context.Context, *pgx.Conn, run) error {
	return func(ctx context.Context, conn *pgx.Conn, _ run) error {
		var n int
		if err := conn.QueryRow(ctx, "select sum(n) from counter").Scan(&n); err != nil || n == want {
			return err
		}
		return fmt.Errorf("counted %d, want %d", n, want)
	}
}

func explore(t *testing.T, a act) (int, error) {
	t.Helper()
	stage := newStage(pgtest.URL(t, counters))
	defer stage.close()
	return stage.explore(t.Context(), a)
}

// Sessions that do not conflict are interleaved in every possible way, each once.
func TestExplore_TriesEveryInterleavingOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lengths []int
		want    int
	}{{[]int{2, 2}, 6}, {[]int{4, 4}, 70}, {[]int{1, 2, 3}, 60}, {[]int{3, 3, 3}, 1680}} {
		seen := map[string]bool{}
		a := act{check: func(_ context.Context, _ *pgx.Conn, run run) error {
			order := ""
			for _, line := range run {
				order += line.part
			}
			if seen[order] {
				return fmt.Errorf("%s came twice", order)
			}
			seen[order] = true
			return nil
		}}
		for i, length := range c.lengths {
			a.parts = append(a.parts, part{name: fmt.Sprint(i), steps: strings.Split(strings.Repeat(";", length-1), ";")})
		}
		if n, err := explore(t, a); n != c.want || len(seen) != c.want || err != nil {
			t.Errorf("%v: %d interleavings, %d different, want %d: %v", c.lengths, n, len(seen), c.want, err)
		}
	}
}

// A counter that is read and then written loses a count in some interleaving. One that is updated
// in one statement does not.
func TestExplore_FindsALostUpdate(t *testing.T) {
	t.Parallel()
	careless := []string{"select set_config('play.n', n::text, false) from counter where id = 1",
		"update counter set n = current_setting('play.n')::int + 1 where id = 1"}
	n, err := explore(t, act{given: zero, parts: []part{{name: "a", steps: careless}, {name: "b", steps: careless}}, check: sum(2)})
	if err == nil || n != 2 || !strings.Contains(err.Error(), "counted 1, want 2\na: select") {
		t.Errorf("after %d: %v", n, err)
	}
	careful := []string{"begin", "update counter set n = n + 1 where id = 1", "commit"}
	n, err = explore(t, act{given: zero, parts: []part{{name: "a", steps: careful}, {name: "b", steps: careful}}, check: sum(2)})
	if err != nil || n != 14 { // of 20; in 6 a session would go on while it is blocked
		t.Errorf("%d interleavings: %v", n, err)
	}
}

// A session that waits gets its answer and its next turn when the other session has ended.
func TestExplore_BlockedSessionsGoOnWhenFree(t *testing.T) {
	t.Parallel()
	waited := false
	count := []string{"begin", "update counter set n = n + 1 where id = 1 returning n", "commit"}
	_, err := explore(t, act{given: zero, parts: []part{{name: "a", steps: count}, {name: "b", steps: count}, {name: "c", steps: count[1:2]}},
		check: func(ctx context.Context, conn *pgx.Conn, run run) error {
			waited = waited || strings.Contains(run.String(), "returning n: blocked\n")
			return sum(3)(ctx, conn, run)
		}})
	if err != nil || !waited {
		t.Errorf("waited: %t, %v", waited, err)
	}
}

// Two sessions that lock two rows in opposite order deadlock in some interleaving, and the run
// shows it.
func TestExplore_FindsADeadlock(t *testing.T) {
	t.Parallel()
	const one, two = "update counter set n = n + 1 where id = 1", "update counter set n = n + 1 where id = 2"
	_, err := explore(t, act{
		given: zero,
		parts: []part{{name: "a", steps: []string{"begin", one, two, "commit"}}, {name: "b", steps: []string{"begin", two, one, "commit"}}},
		check: func(_ context.Context, _ *pgx.Conn, run run) error {
			for _, line := range run {
				if line.answer == "40P01" {
					return fmt.Errorf("%s was the victim", line.part)
				}
			}
			return nil
		}})
	if err == nil || !strings.Contains(err.Error(), "was the victim") {
		t.Errorf("got %v", err)
	}
}

// If two sessions wait for one transaction, the server chooses which goes on, and may choose
// differently in a repetition. Then the run is tried again.
func TestExplore_RepeatsUntilTheServerChoosesTheSame(t *testing.T) {
	t.Parallel()
	insert := func(end string) []string { return []string{"begin", "insert into counter values (3, 0)", end} }
	n, err := explore(t, act{
		given: "delete from counter where id = 3",
		parts: []part{{name: "a", steps: insert("rollback")}, {name: "b", steps: insert("rollback")}, {name: "c", steps: insert("rollback")}},
		check: func(context.Context, *pgx.Conn, run) error { return nil }})
	if err != nil || n < 100 {
		t.Errorf("%d interleavings: %v", n, err)
	}
}
