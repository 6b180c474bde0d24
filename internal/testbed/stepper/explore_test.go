package stepper

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/pgtest"
)

// counters is a template with two rows in which sessions count.
var counters = pgtest.Template{Name: "stepper_counters_1", Apply: func(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "create table counter (id int primary key, n int not null); insert into counter values (1, 0), (2, 0)")
	return err
}}

const zero = "update counter set n = 0"

func statements(all ...string) (steps []Step) {
	for _, statement := range all {
		steps = append(steps, SQL(statement))
	}
	return steps
}

// sum fails unless the counters add up to want.
func sum(want int) func(context.Context, *pgx.Conn, Run) error {
	return func(ctx context.Context, conn *pgx.Conn, _ Run) error {
		var n int
		if err := conn.QueryRow(ctx, "select sum(n) from counter").Scan(&n); err != nil || n == want {
			return err
		}
		return fmt.Errorf("counted %d, want %d", n, want)
	}
}

func explore(t *testing.T, scene Scene) (int, error) {
	t.Helper()
	return Explore(t.Context(), pgtest.URL(t, counters), scene)
}

// Sessions that do not conflict are interleaved in every possible way, each once.
func TestExplore_TriesEveryInterleavingOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lengths []int
		want    int
	}{{[]int{2, 2}, 6}, {[]int{4, 4}, 70}, {[]int{1, 2, 3}, 60}, {[]int{3, 3, 3}, 1680}} {
		seen := map[string]bool{}
		scene := Scene{Check: func(_ context.Context, _ *pgx.Conn, run Run) error {
			order := ""
			for _, line := range run {
				order += line.Part
			}
			if seen[order] {
				return fmt.Errorf("%s came twice", order)
			}
			seen[order] = true
			return nil
		}}
		for i, length := range c.lengths {
			scene.Parts = append(scene.Parts, Part{Name: fmt.Sprint(i), Steps: statements(strings.Split(strings.Repeat(";", length-1), ";")...)})
		}
		if n, err := explore(t, scene); n != c.want || len(seen) != c.want || err != nil {
			t.Errorf("%v: %d interleavings, %d different, want %d: %v", c.lengths, n, len(seen), c.want, err)
		}
	}
}

// A counter that is read and then written loses a count in some interleaving. One that is updated
// in one statement does not.
func TestExplore_FindsALostUpdate(t *testing.T) {
	t.Parallel()
	careless := func(name string) Part {
		return Part{Name: name, Steps: []Step{
			SQL("select n from counter where id = 1"),
			func(so Run) string { return "update counter set n = " + so.Answer(name) + " + 1 where id = 1" },
		}}
	}
	n, err := explore(t, Scene{Given: zero, Parts: []Part{careless("a"), careless("b")}, Check: sum(2)})
	if err == nil || n != 2 || !strings.Contains(err.Error(), "counted 1, want 2\na: select") {
		t.Errorf("after %d: %v", n, err)
	}
	careful := statements("begin", "update counter set n = n + 1 where id = 1", "commit")
	n, err = explore(t, Scene{Given: zero, Parts: []Part{{Name: "a", Steps: careful}, {Name: "b", Steps: careful}}, Check: sum(2)})
	if err != nil || n != 14 { // of 20; in 6 a session would go on while it is blocked
		t.Errorf("%d interleavings: %v", n, err)
	}
}

// A session that waits gets its answer and its next turn when the other session has ended.
func TestExplore_BlockedSessionsGoOnWhenFree(t *testing.T) {
	t.Parallel()
	waited := false
	count := statements("begin", "update counter set n = n + 1 where id = 1 returning n", "commit")
	_, err := explore(t, Scene{Given: zero, Parts: []Part{{Name: "a", Steps: count}, {Name: "b", Steps: count}, {Name: "c", Steps: count[1:2]}},
		Check: func(ctx context.Context, conn *pgx.Conn, run Run) error {
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
	_, err := explore(t, Scene{
		Given: zero,
		Parts: []Part{{Name: "a", Steps: statements("begin", one, two, "commit")}, {Name: "b", Steps: statements("begin", two, one, "commit")}},
		Check: func(_ context.Context, _ *pgx.Conn, run Run) error {
			for _, line := range run {
				if line.Answer == "40P01" {
					return fmt.Errorf("%s was the victim", line.Part)
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
	insert := func(end string) []Step { return statements("begin", "insert into counter values (3, 0)", end) }
	n, err := explore(t, Scene{
		Given: "delete from counter where id = 3",
		Parts: []Part{{Name: "a", Steps: insert("rollback")}, {Name: "b", Steps: insert("rollback")}, {Name: "c", Steps: insert("rollback")}},
		Check: func(context.Context, *pgx.Conn, Run) error { return nil }})
	if err != nil || n < 100 {
		t.Errorf("%d interleavings: %v", n, err)
	}
}
