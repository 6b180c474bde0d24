package ops_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
)

// blocked makes a lane of some jobs, the first of which is a dead letter.
func (b *bed) blocked(lane string, behind int) (ids []int64) {
	b.Helper()
	for range 1 + behind {
		e, err := job.Enqueue(b.Context(), b.pool, job.Request{Queue: "q", Kind: "k", Lane: lane})
		b.must(err)
		ids = append(ids, e.ID)
	}
	_, err := b.claim().Fail(b.Context(), b.pool, pawl.Final(errors.New("boom")), job.Backoff{})
	b.must(err)
	return ids
}

func (b *bed) lanes(f ops.LaneFilter) (lanes []ops.Lane) {
	b.Helper()
	lanes, err := ops.Lanes(b.Context(), b.pool, f)
	b.must(err)
	return lanes
}

// A blocked lane is found, unblocked with a record, and goes on; its dead letter stays.
func TestLanes_Unblock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.blocked("account 17", 2)
	_, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "other", Kind: "k", Lane: "account 18"})
	b.must(err)
	all := b.lanes(ops.LaneFilter{Blocked: true})
	if len(all) != 1 || all[0].Name != "account 17" || !all[0].Blocked() || all[0].Head != ids[0] || all[0].Waiting != 2 ||
		all[0].Policy != "block" || all[0].Oldest.IsZero() || all[0].ReadAt.Before(all[0].Oldest) {
		t.Fatalf("%+v", all)
	}
	r, err := ops.UnblockLane(t.Context(), b.pool, "q", "account 17", ids[1], by)
	if err != nil || r.Outcome != ops.Refused || r.Job != ids[0] || r.Hint == "" || r.Changed() {
		t.Errorf("another job: %+v, %v", r, err)
	}
	r, err = ops.UnblockLane(t.Context(), b.pool, "q", "account 17", ids[0], by)
	if err != nil || r.Outcome != ops.Unblocked || r.Job != ids[0] || r.Hint != "" || !r.Changed() {
		t.Errorf("%+v, %v", r, err)
	}
	b.wantCount("select count(*) from pawl.audit where verb = 'lane_unblock' and actor = 'ann' and (before ->> 'lane_head')::boolean and not (after ->> 'lane_head')::boolean", 1)
	b.wantCount("select count(*) from pawl.job where status = 'dead_letter' and not lane_head", 1)
	if j := b.claim(); j.ID != ids[1] {
		t.Errorf("claimed %d, want %d", j.ID, ids[1])
	}
	r, err = ops.UnblockLane(t.Context(), b.pool, "q", "account 17", 0, by)
	if err != nil || r.Outcome != ops.Refused || r.Was != ops.StatusProcessing || r.Hint == "" {
		t.Errorf("a running head: %+v, %v", r, err)
	}
	if r, err = ops.UnblockLane(t.Context(), b.pool, "q", "nobody", 0, by); err != nil || r.Outcome != ops.Absent || r.Hint == "" {
		t.Errorf("no such lane: %+v, %v", r, err)
	}
}

// The same dead letter retried, or discarded, in place of an unblock: the order is kept, or the lane goes on.
func TestLanes_RetryAndDiscardOfTheHead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	retried := b.blocked("retried", 1)
	b.do(ops.Retry, retried[0], ops.Retried)
	if j := b.claim(); j.ID != retried[0] {
		t.Errorf("claimed %d, want %d", j.ID, retried[0])
	}
	discarded := b.blocked("discarded", 1)
	b.do(ops.Discard, discarded[0], ops.Discarded)
	if j := b.claim(); j.ID != discarded[1] {
		t.Errorf("claimed %d, want %d", j.ID, discarded[1])
	}
}

// The policy of a lane is changed with a record, and a lane whose policy was set by hand is kept.
func TestLanes_Policy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.blocked("l", 1)
	if r, err := ops.SetLanePolicy(t.Context(), b.pool, "q", "l", "park", by); err != nil || r.Outcome != ops.PolicyChanged || r.Policy != "block" || !r.Changed() {
		t.Errorf("%+v, %v", r, err)
	}
	if l := b.lanes(ops.LaneFilter{}); len(l) != 1 || l[0].Policy != "park" || !l[0].Blocked() {
		t.Errorf("%+v", l)
	}
	b.wantCount("select count(*) from pawl.audit where verb = 'lane_policy' and before ->> 'policy' = 'block' and after ->> 'policy' = 'park'", 1)
	b.exec("delete from pawl.job")
	b.exec("select pawl_v1.lane_purge()")
	b.wantCount("select count(*) from pawl.lane", 1)
	if r, err := ops.SetLanePolicy(t.Context(), b.pool, "q", "nobody", "park", by); err != nil || r.Outcome != ops.Absent || r.Hint == "" {
		t.Errorf("no such lane: %+v, %v", r, err)
	}
	if r, err := ops.UnblockLane(t.Context(), b.pool, "q", "l", 0, by); err != nil || r.Outcome != ops.Idle || r.Changed() {
		t.Errorf("an empty lane: %+v, %v", r, err)
	}
}

// Pages follow the ids.
func TestLanes_FiltersAndPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("insert into pawl.lane (queue, name) select 'q' || n % 2, n::text from generate_series(1, 60) as n")
	for name, c := range map[string]struct {
		filter ops.LaneFilter
		want   int
	}{
		"default": {ops.LaneFilter{}, 50},
		"all":     {ops.LaneFilter{Limit: 1000}, 60},
		"queue":   {ops.LaneFilter{Queue: "q1", Limit: 1000}, 30},
		"blocked": {ops.LaneFilter{Blocked: true}, 0},
		"rest":    {ops.LaneFilter{After: 55}, 5},
		"quoted":  {ops.LaneFilter{Queue: "' or true --"}, 0},
	} {
		got := b.lanes(c.filter)
		if len(got) != c.want || !slices.IsSortedFunc(got, func(a, b ops.Lane) int { return int(a.ID - b.ID) }) {
			t.Errorf("%s: %d lanes, want %d", name, len(got), c.want)
		}
	}
}

func TestLanes_RefuseBadArguments(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.blocked("l", 1)
	for name, bad := range map[string]ops.By{
		"no actor":    {Reason: "r"},
		"no reason":   {Actor: "a"},
		"long reason": {Actor: "a", Reason: strings.Repeat("r", 4001)},
		"from":        {Actor: "a", Reason: "r", From: []ops.Status{ops.StatusDeadLetter}},
	} {
		_, err := ops.UnblockLane(t.Context(), b.pool, "q", "l", 0, bad)
		_, err2 := ops.SetLanePolicy(t.Context(), b.pool, "q", "l", "park", bad)
		if !errors.Is(err, pawl.ErrArgumentInvalid) || !errors.Is(err2, pawl.ErrArgumentInvalid) {
			t.Errorf("%s: %v, %v", name, err, err2)
		}
	}
	if _, err := ops.SetLanePolicy(t.Context(), b.pool, "q", "l", "drop", by); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("policy drop: %v", err)
	}
	if _, err := ops.UnblockLane(t.Context(), b.pool, "q", "l", -1, by); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("job -1: %v", err)
	}
	for _, limit := range []int{-1, 1001} {
		if _, err := ops.Lanes(t.Context(), nil, ops.LaneFilter{Limit: limit}); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	b.wantCount("select count(*) from pawl.audit", 0)
	b.wantCount("select count(*) from pawl.lane where policy = 'block'", 1)
}
