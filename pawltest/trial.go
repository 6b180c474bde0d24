package pawltest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A crashCase is the common part of all crash tests: how to begin a process, and how to judge it.
type crashCase struct {
	schema, ignore []string
	check          func(testing.TB, *pgxpool.Pool)
	begin          func(context.Context, *trial, *process) (life, error)
	finds          bool   // the worker finds its work in a table of yours, which may hold its lease
	stalls         bool   // a process may also stall, while another takes over
	advice         string // how to fix a difference
	untouched      string // the likely cause if the run after a death changes nothing
	idle           string // why there may be no point to die at
}

// A life is the work of a process until it is done or the process dies. It returns the response.
type life func(context.Context) (response contents, err error)

func caseOf(p any) crashCase { return p.(interface{ crashCase() crashCase }).crashCase() }

// A trial is one fresh database, and the processes that run on it one after the other.
type trial struct {
	crashCase
	said *trialTB
	url  string
	eyes *pgxpool.Pool // the test's own pool, not a process's
	all  []*process

	acknowledged atomic.Bool // the message of a TriggerTest does not come again
	stalling     atomic.Bool // a process is stalled, and another works

	changedNothing bool // the process after a death
}

const trialLimit = time.Minute

// on runs a trial, compares the result if want is not nil, and reports whether it passed.
func (c crashCase) on(tb testing.TB, name string, want contents, do func(context.Context, *trial) (response contents, err error)) bool {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), trialLimit)
	defer cancel()
	t := &trial{crashCase: c, said: &trialTB{TB: tb, name: name}}
	t.url = URL(t.said, c.schema...)
	var err error
	if t.eyes, err = pgxpool.New(ctx, t.url); err != nil {
		tb.Fatalf("pawltest: %v", err)
		return false
	}
	defer t.close()
	if err := t.run(ctx, want, do); err != nil {
		t.said.Errorf("%v", err)
		return false
	}
	if c.check != nil {
		c.check(t.said, t.eyes)
	}
	return !t.said.failed
}

func (t *trial) run(ctx context.Context, want contents, do func(context.Context, *trial) (response contents, err error)) error {
	response, err := do(ctx, t)
	if err != nil || want == nil {
		return err
	}
	got, err := read(ctx, t.eyes, response, want.without())
	lines := got.unlike(want)
	if len(lines) > 0 && t.changedNothing && t.untouched != "" {
		t.said.Errorf("the run after it changed nothing: %s", t.untouched)
	}
	for _, line := range lines {
		t.said.Errorf("%s", line)
	}
	return err
}

// start begins a process that dies at a point of its work, and returns the work. Statements of
// Make are no points.
func (t *trial) start(ctx context.Context, at int) (*process, life, error) {
	p, err := newProcess(ctx, t.url, t.next())
	if err != nil {
		return nil, nil, err
	}
	t.all = append(t.all, p)
	work, err := t.begin(ctx, t, p)
	p.diesAt(at)
	return p, func(ctx context.Context) (contents, error) { return p.live(ctx, work) }, err
}

// next returns the name of the process that begins next.
func (t *trial) next() string { return fmt.Sprint(processName, len(t.all)+1) }

// first reports whether the process that begins is the trial's first.
func (t *trial) first() bool { return len(t.all) == 1 }

func (t *trial) close() {
	for _, p := range t.all {
		p.close()
	}
	t.eyes.Close()
}

func once(ctx context.Context, t *trial) (contents, error) {
	_, work, err := t.start(ctx, 0)
	if err != nil {
		return nil, err
	}
	return work(ctx)
}

// crash runs a process that dies or loses a reply at a point, and then the recovery. died is false
// if the process did not reach the point.
func (c crashCase) crash(tb testing.TB, at int, want contents) (fine, died bool) {
	tb.Helper()
	fine = c.on(tb, "without a death", want, func(ctx context.Context, t *trial) (contents, error) {
		p, work, err := t.start(ctx, at)
		if err != nil {
			return nil, err
		}
		_, err = work(ctx)
		point := p.last()
		if died = point != ""; died {
			t.said.name = point
		} else if err != nil {
			return nil, err
		}
		if p.dead() {
			if err := bury(ctx, t.eyes); err != nil {
				return nil, err
			}
			return t.recover(ctx)
		}
		response, err := work(ctx)
		if err != nil || !died || !c.finds {
			return response, err
		}
		return t.recover(ctx) // the claim whose reply was lost may hold a lease
	})
	return fine, died
}

// recover runs the process that follows a dead one, and notes whether it changed anything.
func (t *trial) recover(ctx context.Context) (contents, error) {
	before, err := read(ctx, t.eyes, nil, nil)
	if err != nil {
		return nil, err
	}
	response, err := once(ctx, t)
	if err != nil {
		return nil, err
	}
	after, err := read(ctx, t.eyes, nil, nil)
	t.changedNothing = len(after.unlike(before)) == 0
	return response, err
}

// undisturbed returns the contents after a run, without the columns that differ between two runs.
func (c crashCase) undisturbed(tb testing.TB) (want contents, ok bool) {
	tb.Helper()
	var before, other contents
	var random []string
	if !c.on(tb, "undisturbed", nil, func(ctx context.Context, t *trial) (_ contents, err error) {
		if before, err = read(ctx, t.eyes, nil, nil); err != nil {
			return nil, err
		}
		if err := moveSequences(ctx, t.eyes); err != nil {
			return nil, err
		}
		response, err := once(ctx, t)
		if err == nil {
			other, err = read(ctx, t.eyes, response, c.ignore)
		}
		return nil, err
	}) {
		return nil, false
	}
	if !c.on(tb, "undisturbed", nil, func(ctx context.Context, t *trial) (contents, error) {
		response, err := once(ctx, t)
		if err == nil {
			want, err = read(ctx, t.eyes, response, c.ignore)
		}
		if err == nil {
			without := want.differing(other)
			random = slices.DeleteFunc(slices.Clone(without), func(column string) bool { return slices.Contains(want.without(), column) })
			want, err = read(ctx, t.eyes, response, without)
		}
		return nil, err
	}) {
		return nil, false
	}
	if c.check == nil && !want.changed(before, other) {
		tb.Errorf("pawltest: undisturbed, the handler changed no table and enqueued nothing, so nothing is tested: give Check something to count")
		return nil, false
	}
	if len(random) > 0 {
		slices.Sort(random)
		tb.Logf("pawltest: not compared, because they differ between two undisturbed runs: %s", strings.Join(random, ", "))
	}
	return want, true
}

// A trialTB prefixes messages with its trial's name. It fails on its own, so that the databases of
// other trials are not kept.
type trialTB struct {
	testing.TB
	name   string
	failed bool
}

func (n *trialTB) Failed() bool { return n.failed }

func (n *trialTB) Error(args ...any) { n.Helper(); n.Errorf("%s", fmt.Sprint(args...)) }
func (n *trialTB) Fatal(args ...any) { n.Helper(); n.Fatalf("%s", fmt.Sprint(args...)) }

func (n *trialTB) Errorf(format string, args ...any) {
	n.Helper()
	n.failed = true
	n.TB.Errorf("pawltest: %s: %s", n.name, fmt.Sprintf(format, args...))
}

func (n *trialTB) Fatalf(format string, args ...any) {
	n.Helper()
	n.failed = true
	n.TB.Fatalf("pawltest: %s: %s", n.name, fmt.Sprintf(format, args...))
}
