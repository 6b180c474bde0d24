//go:build proof

package schematest_test

import (
	"slices"
	"testing"
)

// Each mutant of the notifications is found by a waking.
func TestWake_MutantsAreCaught(t *testing.T) {
	t.Parallel()
	const expression = "create or replace function pawl_v1._asleep(p_queue text) returns boolean language sql volatile return "
	for name, m := range map[string]struct{ mutation, waking string }{
		"enqueue notifies always":                     {expression + "true", "enqueue"},
		"enqueue never notifies":                      {expression + "false", "enqueue"},
		"the probe keeps its lock":                    {expression + "not pg_try_advisory_lock_shared(1885435767, pawl_v1._wake_key(p_queue))", "enqueue"},
		"a lane's first wakes no worker":              {edited("_job_insert", "(p_lane is null or v_head)", "p_lane is null"), "enqueue, first of its lane"},
		"who is behind in a lane wakes":               {edited("_job_insert", "(p_lane is null or v_head) and ", ""), "enqueue, behind in its lane"},
		"what comes later wakes":                      {edited("_job_insert", "coalesce(p_options ->> 'retry_in_ms', '0') = '0' and ", ""), "enqueue, later"},
		"a batch wakes its first queue":               {edited("job_enqueue_many", "if p_queues[1] <> any (p_queues) then", "if false then"), "enqueue many, two queues"},
		"a batch of what comes later wakes":           {edited("job_enqueue_many", " and 0 = any (p_retry_in_ms) is distinct from false", ""), "enqueue many, later"},
		"a batch of duplicates wakes":                 {edited("job_enqueue_many", "v_new > 0 and ", ""), "enqueue many, duplicates"},
		"a discard that frees a lane wakes no worker": {edited("job_discard", "pawl_v1._lane_freed(v_before.lane_id, v_before.queue)", "pawl_v1._lanes_free(array[v_before.lane_id])"), "discard what blocks a lane"},
		"every cancel wakes":                          {edited("_lane_freed", "if v_detail ? 'promoted' then", "if true then"), "cancel the last of a lane"},
		"a leaving worker wakes no other":             {edited("worker_leave", "if v_released > 0 then", "if false then"), "leave"},
		"a kick notifies always":                      {edited("job_kick", "\n    where pawl_v1._asleep(q.name)", ""), "kick"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := wakings[slices.IndexFunc(wakings, func(w waking) bool { return w.name == m.waking })]
			if faults := append(w.judge(t, true, m.mutation), w.judge(t, false, m.mutation)...); len(faults) == 0 {
				t.Errorf("it survives %q", w.name)
			}
		})
	}
}
