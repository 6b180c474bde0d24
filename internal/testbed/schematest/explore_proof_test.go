//go:build proof

package schematest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
)

// A scene is two or three sessions on the same rows, each with one transaction. It is explored in
// every interleaving at every isolation level. All scenes are judged by the same invariants, and no
// scene states its expected result.
type scene struct {
	name    string
	given   string
	sides   [][]string // one statement per step; the last step commits, unless it is a rollback
	apart   bool       // each statement of the last side is its own transaction
	refusal []string   // allowed SQLSTATEs, besides those allowed for any scene
	// heeded means that no side may be refused as stale, because the sides are independent.
	heeded bool
}

// busy is allowed because a strict finish of many jobs never waits for a locked row.
var busy = []string{"55P03"}

// The initial states of scenes, all created through the contract.
const (
	pending   = "select pawl_v1.worker_register('one'), pawl_v1.worker_register('two'), pawl_v1.job_enqueue('q', 'k', '');"
	heldByOne = pending + "select play.claim(1);"
	overdue   = heldByOne + oneIsDead
	// heldByTwo has fence 2. Fence 1 is a stale attempt's.
	heldByTwo  = overdue + "select play.sweep(); select play.claim(2);"
	pair       = "select pawl_v1.worker_register('one'), pawl_v1.worker_register('two'), pawl_v1.job_enqueue('q', 'k', ''), pawl_v1.job_enqueue('q', 'k', '');"
	heldPair   = pair + "select play.claim(1, 2);"
	pairIsDue  = heldPair + oneIsDead
	rowLease   = pending + "select play.claim(null);"
	rowOverdue = rowLease + "update pawl.job set lease_expires_at = now() - interval '1 hour';"

	cancelled = heldByOne + operatorCancels + ";"

	// stored, storedDead and discarded are a kept delivery: stored, dead-lettered, and with its job
	// discarded. handForgotten is another one.
	stored     = "select pawl_v1.worker_register('one'); begin; select play.store();" + kept + "commit;"
	storedDead = stored + "select play.claim(1); select play.fail(1, 1, '{\"final\": true}');"
	discarded  = storedDead + operatorDiscards + ";"
	replays    = "select play.replay()"

	operatorCancels  = "select play.operate('cancel')"
	operatorRetries  = "select play.operate('retry')"
	operatorDiscards = "select play.operate('discard')"

	claimOne       = "select play.claim(1)"
	claimTwo       = "select play.claim(2)"
	finishOne      = "select play.finish(1, 1)"
	finishTwo      = "select play.finish(1, 2)"
	cancelOne      = `select play.fail(1, 1, '{"cancel": true}')`
	failOne        = `select play.fail(1, 1, '{"retry_in_ms": 0}')`
	sweepEverybody = "select play.sweep()"
	abandonOne     = "select play.abandon(1, '{1}')"
	heartbeat      = "select h.outcome from pawl_v1.worker_heartbeat(1) as h"
	finishPair     = "select play.finish_many('{1,2}', '{1,1}')"
	finishBack     = "select play.finish_many('{2,1}', '{1,1}')"
	finishThose    = `select play.finish_many('{2,1}', '{1,1}', '{"skip_stale": true}')`
	rollback       = "rollback"
)

// scenes are the concurrent pairs for jobs and deliveries.
var scenes = []scene{
	{name: "claim, claim", given: pending, sides: [][]string{{claimOne}, {claimTwo}}},
	{name: "claim, claim aborted", given: pending, sides: [][]string{{claimOne}, {claimTwo, rollback}}},
	{name: "claim, claim, claim", given: pair, sides: [][]string{{claimOne}, {claimTwo}, {"select play.claim(null)"}}},
	{name: "claim, finish", given: heldByOne, sides: [][]string{{claimTwo}, {finishOne}}},
	{name: "claim, finish aborted", given: heldByOne, sides: [][]string{{claimTwo}, {finishOne, rollback}}},
	{name: "claim by id, claim", given: pending, sides: [][]string{{"select play.claim_id(1, 1)"}, {claimTwo}}},
	{name: "claim by id, claim by id", given: pending, sides: [][]string{{"select play.claim_id(1, 1)"}, {"select play.claim_id(1, 2)"}}},
	{name: "claim by id, release", given: heldByOne, sides: [][]string{{"select play.claim_id(1, 2)"}, {"select play.release(1, 1)"}}},
	{name: "claim, bury", given: pending + oneIsDead, sides: [][]string{{claimOne}, {sweepEverybody}, {heartbeat}}},
	{name: "finish, finish", given: heldByOne, sides: [][]string{{finishOne}, {finishOne}}},
	{name: "finish, finish aborted", given: heldByOne, sides: [][]string{{finishOne}, {finishOne, rollback}}},
	{name: "finish, zombie's finish", given: heldByTwo, sides: [][]string{{finishTwo}, {finishOne}}},
	{name: "finish, zombie's finish many", refusal: busy, given: heldByTwo, sides: [][]string{{finishTwo}, {"select play.finish_many('{1}', '{1}')"}}},
	{name: "finish, zombie's fail", given: heldByTwo, sides: [][]string{{finishTwo}, {failOne}}},
	{name: "finish, zombie's release", given: heldByTwo, sides: [][]string{{finishTwo}, {"select play.release(1, 1)"}}},
	{name: "finish, zombie's cancel", given: heldByTwo, sides: [][]string{{finishTwo}, {cancelOne}}},
	{name: "finish, cancel", given: heldByOne, sides: [][]string{{finishOne}, {cancelOne}}},
	{name: "release, claim", given: heldByOne, sides: [][]string{{"select play.release(1, 1)"}, {claimTwo, finishTwo}}},
	{name: "fail, claim", given: heldByOne, sides: [][]string{{failOne}, {claimTwo, finishTwo}}},
	{name: "fail, release", given: heldByOne, sides: [][]string{{failOne}, {"select play.release(1, 1)"}}},

	{name: "sweep, finish", given: overdue, sides: [][]string{{sweepEverybody}, {finishOne}}},
	{name: "sweep, cancel", given: overdue, sides: [][]string{{sweepEverybody}, {cancelOne}}},
	{name: "sweep, fail and claim", given: overdue, sides: [][]string{{sweepEverybody}, {failOne, claimTwo}}},
	{name: "sweep aborted, finish", given: overdue, sides: [][]string{{sweepEverybody, rollback}, {finishOne}}},
	{name: "sweep, heartbeat", given: overdue, sides: [][]string{{sweepEverybody}, {heartbeat, finishOne}}},
	{name: "sweep, sweep", given: overdue, sides: [][]string{{sweepEverybody}, {sweepEverybody}}},
	{name: "sweep, sweep, finish", given: overdue, sides: [][]string{{sweepEverybody}, {sweepEverybody}, {finishOne}}},
	{name: "sweep, finish, claim", given: overdue, sides: [][]string{{sweepEverybody}, {finishOne}, {claimTwo}}},
	{name: "sweep, claim, zombie's finish", given: overdue, sides: [][]string{{"select play.hold(1, 1)", "select play.effect(1)", "select play.end(1, 1)"}, {sweepEverybody, claimTwo, finishTwo}}, apart: true},
	{name: "sweep, renew", given: rowOverdue, sides: [][]string{{sweepEverybody}, {"select play.renew(1, 1)", finishOne}}},
	{name: "sweep, claim, renew", given: rowOverdue, sides: [][]string{{"select play.renew(1, 1)"}, {sweepEverybody, "select play.claim(null)"}}, apart: true},
	{name: "leave, finish", given: heldByOne, sides: [][]string{{"select play.leave(1)"}, {finishOne}}},
	{name: "leave, claim", given: heldByOne, sides: [][]string{{"select play.leave(1)"}, {claimOne}, {claimTwo}}},
	{name: "leave, one's own last claim", given: pending, sides: [][]string{{"select play.leave(1)"}, {claimOne}}},
	{name: "abandon, sweep", given: heldByOne, sides: [][]string{{abandonOne}, {sweepEverybody}}},
	{name: "abandon, sweep, claim", given: heldByOne, sides: [][]string{{abandonOne}, {sweepEverybody}, {claimTwo}}},
	{name: "abandon, one's own last claim", given: pair + "select play.claim(1);", sides: [][]string{{abandonOne}, {claimOne}, {claimTwo}}},
	{name: "abandon, finish, sweep", given: heldByOne, sides: [][]string{{abandonOne}, {finishOne}, {sweepEverybody}}},
	{name: "leave, sweep", given: overdue, sides: [][]string{{"select play.leave(1)"}, {sweepEverybody}}},

	{name: "finish many, finish many in reverse", refusal: busy, given: heldPair, sides: [][]string{{finishPair}, {finishBack}}},
	{name: "finish many, sweep", refusal: busy, given: pairIsDue, sides: [][]string{{finishBack}, {sweepEverybody}}},
	{name: "finish those still held, sweep", given: pairIsDue, sides: [][]string{{finishThose}, {sweepEverybody}, {finishOne}}},
	{name: "hold many, fail", given: heldPair, sides: [][]string{{"select play.hold_many('{2,1}', '{1,1}')", finishThose}, {failOne}}},
	{name: "hold many, hold and finish", refusal: busy, given: heldPair, sides: [][]string{{"select play.hold_many('{2,1}', '{1,1}')", finishPair}, {"select play.hold(1, 1)", finishOne}}},

	{name: "enqueue, same", sides: [][]string{{"select play.enqueue('x', 'one')"}, {"select play.enqueue('x', 'one')"}}},
	{name: "enqueue, same aborted", sides: [][]string{{"select play.enqueue('x', 'one')", rollback}, {"select play.enqueue('x', 'one')"}}},
	{name: "operator cancels, finish", given: heldByOne, sides: [][]string{{operatorCancels}, {finishOne}}},
	{name: "operator cancels, finish aborted", given: heldByOne, sides: [][]string{{operatorCancels}, {finishOne, rollback}}},
	{name: "operator cancels, hold and finish", given: heldByOne, sides: [][]string{{operatorCancels}, {"select play.hold(1, 1)", finishOne}}},
	{name: "operator cancels, sweep", given: overdue, sides: [][]string{{operatorCancels}, {sweepEverybody}}},
	{name: "operator cancels, leave", given: heldByOne, sides: [][]string{{operatorCancels}, {"select play.leave(1)"}}},
	{name: "operator cancels, heartbeat, leave", given: heldByOne, sides: [][]string{{operatorCancels}, {heartbeat, "select play.leave(1)"}}},
	{name: "operator cancels, claim", given: pending, sides: [][]string{{operatorCancels}, {claimOne}}},
	{name: "operator cancels twice", given: heldByOne, sides: [][]string{{operatorCancels}, {operatorCancels}}},
	{name: "operator cancels, recall, release", given: heldByOne, sides: [][]string{{operatorCancels}, {"select pawl_v1.job_recall(1)"}, {"select play.release(1, 1)"}}},
	{name: "operator retries, claim", given: pending, sides: [][]string{{operatorRetries}, {claimOne}}},
	{name: "operator retries, zombie finishes", given: overdue + "select play.sweep();", sides: [][]string{{operatorRetries}, {finishOne}}},
	{name: "operator retries the cancelled twice", given: cancelled, sides: [][]string{{operatorRetries}, {operatorRetries}}},
	{name: "operator retries, heartbeat, claim", given: cancelled, sides: [][]string{{operatorRetries}, {heartbeat, claimOne}}},
	{name: "operator retries, discards", given: cancelled, sides: [][]string{{operatorRetries}, {operatorDiscards}}},
	{name: "operator discards, claim", given: pending, sides: [][]string{{operatorDiscards}, {claimOne}}},
	{name: "operator discards, zombie finishes", given: overdue + "select play.sweep();", sides: [][]string{{operatorDiscards}, {finishOne}}},
	{name: "enqueue, other payload", refusal: []string{"P4002"}, sides: [][]string{{"select play.enqueue('x', 'one')"}, {"select play.enqueue('x', 'two')"}}},
	{name: "enqueue, other payload aborted", refusal: []string{"P4002"}, sides: [][]string{{"select play.enqueue('x', 'one')", rollback}, {"select play.enqueue('x', 'two')"}}},
	{name: "enqueue, same, same", sides: [][]string{{"select play.enqueue('x', 'one')"}, {"select play.enqueue('x', 'one')", rollback}, {"select play.enqueue('x', 'one')"}}},
	{name: "enqueue many, reversed", sides: [][]string{{"select play.enqueue_many('{x,y}')"}, {"select play.enqueue_many('{y,x}')"}}},
	{name: "enqueue many, reversed, behind another", sides: [][]string{{"select play.enqueue_many('{m}')", rollback}, {"select play.enqueue_many('{a,m,z}')"}, {"select play.enqueue_many('{z,m,a}')"}}},
	{name: "enqueue many, reversed aborted", sides: [][]string{{"select play.enqueue_many('{x,y}')"}, {"select play.enqueue_many('{z,y,x}')", rollback}}},

	{name: "deliver, same", sides: [][]string{{"select play.deliver('one')"}, {"select play.deliver('one')"}}},
	{name: "deliver, same aborted", sides: [][]string{{"select play.deliver('one')", rollback}, {"select play.deliver('one')"}}},
	{name: "deliver, other payload", refusal: []string{"P4002"}, sides: [][]string{{"select play.deliver('one')"}, {"select play.deliver('two')"}}},
	{name: "deliver, other payload aborted", refusal: []string{"P4002"}, sides: [][]string{{"select play.deliver('one')", rollback}, {"select play.deliver('two')"}}},
	{name: "store, deliver", sides: [][]string{{"select play.store()"}, {"select play.deliver('one')"}}},
	{name: "store aborted, store", sides: [][]string{{"select play.store()", rollback}, {"select play.store()"}}},

	// A read before the first write must not change which transaction a row belongs to.
	{name: "look and store, enqueue", heeded: true, sides: [][]string{{"select age('3'::xid) > 0", "select play.store()"}, {"select play.enqueue('x', 'one')"}}},

	{name: "replay, replay", given: handForgotten, sides: [][]string{{replays}, {replays}}},
	{name: "replay, replay aborted", given: handForgotten, sides: [][]string{{replays}, {replays, rollback}}},
	{name: "replay, deliver", given: handForgotten, sides: [][]string{{replays}, {"select play.deliver('one')"}}},
	{name: "replay, deliver aborted", given: handForgotten, sides: [][]string{{replays}, {"select play.deliver('one')", rollback}}},
	{name: "replay, store", given: handForgotten, sides: [][]string{{replays}, {"select play.store()"}}},
	{name: "replay, replay of the discarded", given: discarded, sides: [][]string{{replays}, {replays}}},
	{name: "replay, replay, deliver of the discarded", given: discarded, sides: [][]string{{replays}, {replays}, {"select play.deliver('one')"}}},
	{name: "replay, operator retries", given: storedDead, sides: [][]string{{replays}, {operatorRetries}}},
	{name: "replay, operator discards", given: storedDead, sides: [][]string{{replays}, {operatorDiscards}}},
	{name: "replay, claim", given: stored, sides: [][]string{{replays}, {claimOne}}},
	{name: "replay, settle", given: stored + "select play.claim(1);", sides: [][]string{{replays}, {"select play.settle(1, 1)"}}},
	{name: "replay, settle aborted", given: stored + "select play.claim(1);", sides: [][]string{{replays}, {"select play.settle(1, 1)", rollback}}},

	{name: "accept, lower", sides: [][]string{{"select play.accept(2)"}, {"select play.accept(1)"}}},
	{name: "accept, lower aborted", sides: [][]string{{"select play.accept(2)", rollback}, {"select play.accept(1)"}}},
	{name: "accept, lower, higher", given: "select pawl_v1.fence_accept('resource', 1);", sides: [][]string{{"select play.accept(2)"}, {"select play.accept(1)"}, {"select play.accept(3)"}}},
}

func allScenes() []scene {
	return slices.Concat(scenes, memoryScenes, openScenes, exchangeScenes, ownScenes, commandScenes, stepScenes)
}

// In no interleaving of any scene, at any isolation level, is an invariant violated. No effect is
// doubled or lost, no stale attempt is accepted, no end is undone, no key or delivery counts twice,
// and no session is left waiting.
func TestExplore_NoInterleavingBreaksAnInvariant(t *testing.T) {
	t.Parallel()
	// stages holds the free stages. Each scene clears the rows of the previous one.
	stages := make(chan *stage, runtime.GOMAXPROCS(0))
	for range cap(stages) {
		stage := newStage(pawltest.URL(t, play))
		t.Cleanup(stage.close)
		stages <- stage
	}
	for _, s := range allScenes() {
		for _, level := range levels {
			t.Run(s.name+"/"+level, func(t *testing.T) {
				t.Parallel()
				stage := <-stages
				defer func() { stages <- stage }()
				n, err := s.explore(t.Context(), stage, level)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d interleavings", n)
			})
		}
	}
}

// explore runs the scene on a database that has play.
func (s scene) explore(ctx context.Context, on *stage, level string) (int, error) {
	// The first side succeeded in some interleaving; otherwise the scene proves nothing.
	wentWell := false
	acted := act{
		given: "select play.reset(), play.reset_commands(), play.reset_effects(), play.reset_memory();" + s.given,
		check: func(ctx context.Context, conn *pgx.Conn, run run) error {
			wentWell = wentWell || !slices.ContainsFunc(run, func(line told) bool { return line.part == "a" && isState(line.answer) })
			if err := s.refused(run, level); err != nil {
				return err
			}
			return judge(ctx, conn)
		},
	}
	for i, statements := range s.sides {
		side := part{name: string(rune('a' + i)), first: "set session characteristics as transaction isolation level " + level}
		if s.apart && i == len(s.sides)-1 {
			side.steps = statements
		} else {
			side.first, side.steps = s.bracket(side.first, statements, level)
		}
		acted.parts = append(acted.parts, side)
	}
	n, err := on.explore(ctx, acted)
	if err == nil && !wentWell {
		err = errors.New("the first side was refused in every interleaving")
	}
	return n, err
}

// bracket makes one transaction of the statements. Above READ COMMITTED the snapshot matters, so
// taking it is a step. In scenes of three sessions it comes first, which bounds the interleavings.
func (s scene) bracket(first string, statements []string, level string) (string, []string) {
	const begin = "begin; select 1"
	taken := slices.Clone(statements)
	if taken[len(taken)-1] != rollback {
		taken = append(taken, "commit")
	}
	switch {
	case level == levels[0]:
		taken[0] = "begin; " + taken[0]
	case len(s.sides) > 2:
		first += "; " + begin
	default:
		taken = append([]string{begin}, taken...)
	}
	return first, taken
}

// refused returns an error if the scene was refused with an SQLSTATE that it does not allow, such
// as a deadlock.
func (s scene) refused(run run, level string) error {
	allowed := s.refusal
	if !s.heeded {
		allowed = append([]string{"P4020", "25P02"}, allowed...)
	}
	if level != levels[0] {
		allowed = append(allowed, lost)
	}
	for _, line := range run {
		if isState(line.answer) && !slices.Contains(allowed, line.answer) {
			return violation{"p_answer", fmt.Sprintf("%s was told %s", line.part, line.answer)}
		}
	}
	return nil
}

// isState distinguishes a SQLSTATE from an outcome. Outcomes are in lower case.
func isState(answer string) bool {
	return len(answer) == 5 && !slices.ContainsFunc([]byte(answer), func(c byte) bool { return c < '0' || c > 'Z' || c > '9' && c < 'A' })
}

// brokenProperty returns the property of a violation, "" for no error, and the error's text
// otherwise.
func brokenProperty(err error) string {
	var v violation
	switch {
	case err == nil:
		return ""
	case errors.As(err, &v):
		return v.property
	}
	return err.Error()
}
