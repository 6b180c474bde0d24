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

// blocked creates a lane of jobs, the first of which is a dead letter.
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

func (b *bed) lanes(f ops.Lanes) (lanes []ops.Lane) {
	b.Helper()
	page, err := f.List(b.Context(), b.pool)
	b.must(err)
	return page.Rows
}

// A blocked lane is listed, unblocked with an audit record, and continues. Its dead letter stays.
func TestLanes_Unblock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.blocked("account 17", 2)
	_, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "other", Kind: "k", Lane: "account 18"})
	b.must(err)
	all := b.lanes(ops.Lanes{Blocked: true})
	if len(all) != 1 || all[0].Name != "account 17" || !all[0].Blocked() || all[0].Head != ids[0] || all[0].Waiting != 2 ||
		all[0].Policy != "block" || all[0].Oldest.IsZero() || all[0].ReadAt.Before(all[0].Oldest) {
		t.Fatalf("%+v", all)
	}
	r, err := ops.LaneRef{Queue: "q", Name: "account 17", Head: ids[1]}.Unblock(t.Context(), b.pool, by)
	if err != nil || r.Outcome != ops.Refused || r.JobID != ids[0] || r.Hint == "" || r.Changed() {
		t.Errorf("another job: %+v, %v", r, err)
	}
	r, err = ops.LaneRef{Queue: "q", Name: "account 17", Head: ids[0]}.Unblock(t.Context(), b.pool, by)
	if err != nil || r.Outcome != ops.Unblocked || r.JobID != ids[0] || r.Hint != "" || !r.Changed() {
		t.Errorf("%+v, %v", r, err)
	}
	b.wantCount("select count(*) from pawl.audit where verb = 'lane_unblock' and actor = 'ann' and (before ->> 'lane_head')::boolean and not (after ->> 'lane_head')::boolean", 1)
	b.wantCount("select count(*) from pawl.job where status = 'dead_letter' and not lane_head", 1)
	if j := b.claim(); j.ID != ids[1] {
		t.Errorf("claimed %d, want %d", j.ID, ids[1])
	}
	r, err = ops.LaneRef{Queue: "q", Name: "account 17"}.Unblock(t.Context(), b.pool, by)
	if err != nil || r.Outcome != ops.Refused || r.Was != "processing" || r.Hint == "" {
		t.Errorf("a running head: %+v, %v", r, err)
	}
	if r, err = (ops.LaneRef{Queue: "q", Name: "nobody"}).Unblock(t.Context(), b.pool, by); err != nil || r.Outcome != ops.Absent || r.Hint == "" {
		t.Errorf("no such lane: %+v, %v", r, err)
	}
}

// If the same dead letter is retried, the order is kept. If it is discarded, the lane continues.
func TestLanes_RetryAndDiscardOfTheHead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	retried := b.blocked("retried", 1)
	b.do(ops.JobRef.Retry, retried[0], ops.Retried)
	if j := b.claim(); j.ID != retried[0] {
		t.Errorf("claimed %d, want %d", j.ID, retried[0])
	}
	discarded := b.blocked("discarded", 1)
	b.do(ops.JobRef.Discard, discarded[0], ops.Discarded)
	if j := b.claim(); j.ID != discarded[1] {
		t.Errorf("claimed %d, want %d", j.ID, discarded[1])
	}
}

// The policy of a lane changes with an audit record. A lane whose policy an operator set is kept.
func TestLanes_Policy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.blocked("l", 1)
	if r, err := (ops.LaneRef{Queue: "q", Name: "l"}).SetPolicy(t.Context(), b.pool, "park", by); err != nil || r.Outcome != ops.Changed || r.Was != "block" || r.Now != "park" || !r.Changed() {
		t.Errorf("%+v, %v", r, err)
	}
	if l := b.lanes(ops.Lanes{}); len(l) != 1 || l[0].Policy != "park" || !l[0].Blocked() {
		t.Errorf("%+v", l)
	}
	b.wantCount("select count(*) from pawl.audit where verb = 'lane_policy' and before ->> 'policy' = 'block' and after ->> 'policy' = 'park'", 1)
	b.exec("delete from pawl.job")
	b.exec("select pawl_v1.lane_purge()")
	b.wantCount("select count(*) from pawl.lane", 1)
	if r, err := (ops.LaneRef{Queue: "q", Name: "nobody"}).SetPolicy(t.Context(), b.pool, "park", by); err != nil || r.Outcome != ops.Absent || r.Hint == "" {
		t.Errorf("no such lane: %+v, %v", r, err)
	}
	if r, err := (ops.LaneRef{Queue: "q", Name: "l"}).Unblock(t.Context(), b.pool, by); err != nil || r.Outcome != ops.Idle || r.Changed() {
		t.Errorf("an empty lane: %+v, %v", r, err)
	}
}

// Pages follow the ids.
func TestLanes_FiltersAndPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("insert into pawl.lane (queue, name) select 'q' || n % 2, n::text from generate_series(1, 60) as n")
	for name, c := range map[string]struct {
		filter ops.Lanes
		want   int
	}{
		"default": {ops.Lanes{}, 50},
		"all":     {ops.Lanes{Limit: 1000}, 60},
		"queue":   {ops.Lanes{Queue: "q1", Limit: 1000}, 30},
		"blocked": {ops.Lanes{Blocked: true}, 0},
		"rest":    {ops.Lanes{After: "55"}, 5},
		"quoted":  {ops.Lanes{Queue: "' or true --"}, 0},
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
	} {
		_, err := ops.LaneRef{Queue: "q", Name: "l"}.Unblock(t.Context(), b.pool, bad)
		_, err2 := ops.LaneRef{Queue: "q", Name: "l"}.SetPolicy(t.Context(), b.pool, "park", bad)
		if !errors.Is(err, pawl.ErrArgumentInvalid) || !errors.Is(err2, pawl.ErrArgumentInvalid) {
			t.Errorf("%s: %v, %v", name, err, err2)
		}
	}
	if _, err := (ops.LaneRef{Queue: "q", Name: "l"}).SetPolicy(t.Context(), b.pool, "drop", by); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("policy drop: %v", err)
	}
	if _, err := (ops.LaneRef{Queue: "q", Name: "l", Head: -1}).Unblock(t.Context(), b.pool, by); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("job -1: %v", err)
	}
	for _, limit := range []int{-1, 1001} {
		if _, err := (ops.Lanes{Limit: limit}).List(t.Context(), nil); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	b.wantCount("select count(*) from pawl.audit", 0)
	b.wantCount("select count(*) from pawl.lane where policy = 'block'", 1)
}
