package ops

import (
	"context"

	"github.com/pawl-go/pawl/internal/contract"
)

func checkWorkers(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "its jobs are nobody's until a worker sweeps, which each does several times a lease: no worker is running here"}
	}, `select 'worker ' || w.id || ' (' || w.name || ') has been silent since ' || date_trunc('second', w.seen_at)
         || case when w.seen_at + 2 * w.lease + interval '5 seconds' < clock_timestamp() then ', past its lease' else ', and its presence lock is free' end
         || ', and holds ' || count(*) || ' jobs', 'start a worker of any kind in this database'
  from pawl.worker as w
  join pawl.job as j on j.claimed_by = w.id
 where w.seen_at + 2 * w.lease + interval '5 seconds' < clock_timestamp()
    or w.seen_at + interval '5 seconds' < clock_timestamp() and `+contract.PresenceFree+`
 group by w.id
 order by w.id`)
}

// silent is a worker whose lease is over.
const silent = "w.seen_at + w.lease < clock_timestamp()"

func checkHandlers(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "work is cut off or taken over that would have ended well a little later, and is done again"}
	}, `select 'worker ' || w.id || ' (' || w.name || ') was silent for ' || round(extract(epoch from w.silence), 1) || ' s, of its lease of '
         || round(extract(epoch from w.lease), 1) || ' s' || coalesce(', until ' || date_trunc('second', w.silence_at), ''),
       'raise Lease to twice that or more; or find what stops the process: too little processor time, long pauses, a database that does not answer'
  from pawl.worker as w
 where w.silence > w.lease / 2
   and not `+silent+`
 union all
select 'handler of ' || h.kind || ' in worker ' || w.id || ' (' || w.name || ') takes ' || h.p99_ms || ' ms (p99), and is cut off '
         || case when h.p99_ms >= 0.8 * h.timeout_ms then 'at ' || h.timeout_ms || ' ms' else 'in a deploy after ' || h.drain_ms || ' ms' end,
       case when h.p99_ms >= 0.8 * h.timeout_ms then 'raise its Timeout, or do less in one job' else 'raise Drain, and what the orchestrator grants; or do less in one job' end
  from pawl.worker as w
 cross join lateral (
        select e.key as kind,
               (e.value ->> 'p99_ms')::numeric as p99_ms,
               (e.value ->> 'timeout_ms')::numeric as timeout_ms,
               (w.report ->> 'drain_ms')::numeric as drain_ms,
               (e.value ->> 'runs')::numeric as runs
          from jsonb_each(w.report -> 'handlers') as e) as h
 where h.runs >= 20
   and h.p99_ms >= least(0.8 * h.timeout_ms, h.drain_ms)
   and not `+silent)
}

func checkWaiting(ctx context.Context, db DB, l Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "nobody claims them: no worker that runs serves the queue and has a handler for the kind, or all are busy"}
	}, `select count(*) || ' jobs of kind ' || j.kind || ' in queue ' || j.queue || ' are due, the first since ' || date_trunc('second', min(j.available_at))
         || ', and none is being worked on',
       case when not r.all_report then 'run a worker with queue ' || j.queue || ' and a handler for ' || j.kind
            when r.serving = 0 then 'no worker that runs serves queue ' || j.queue || ': start one'
            when r.knowing = 0 then 'the workers of queue ' || j.queue || ' have no handler for ' || j.kind || ': deploy one'
            else 'the workers of queue ' || j.queue || ' have a handler for ' || j.kind || ', but all are busy, or their Gate is closed: give it more workers, or Concurrency'
       end || '; or: pawl jobs list --queue ' || quote_literal(j.queue) || ' --kind ' || quote_literal(j.kind)
  from pawl.job as j
 cross join lateral (
        select bool_and(w.report is not null) is not false as all_report,
               count(*) filter (where w.report -> 'queues' ? j.queue) as serving,
               count(*) filter (where w.report -> 'queues' ? j.queue and w.report -> 'handlers' ? j.kind) as knowing
          from pawl.worker as w
         where not `+silent+`) as r
 where j.status = 'pending'
   and not exists (select from pawl.queue as q where q.name = j.queue and q.mode <> 'running')
 group by j.queue, j.kind, r.all_report, r.serving, r.knowing
having min(j.available_at) < clock_timestamp() - $1 * interval '1 millisecond'
   and not exists (select from pawl.job as p
                     left join pawl.worker as w on w.id = p.claimed_by
                    where p.claimed_by is not null
                      and p.queue = j.queue
                      and p.kind = j.kind
                      and coalesce(w.seen_at + w.lease, p.lease_expires_at) > clock_timestamp())
 order by j.queue, j.kind`, l.Waiting.Milliseconds())
}

func checkPaused(ctx context.Context, db DB, l Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "somebody has stopped it, and may have forgotten it: its jobs wait"}
	}, `select 'queue ' || q.name || ' is ' || q.mode || ', and ' || d.due || ' of its jobs are due, the first since ' || date_trunc('second', d.since)
         || coalesce('; ' || a.actor || ' did it at ' || date_trunc('second', a.at) || ': ' || a.reason, ''),
       'if that is over: pawl queues resume ' || quote_literal(q.name)
  from pawl.queue as q
  left join lateral (
        select a.actor, a.at, a.reason
          from pawl.audit as a
         where a.target = 'queue ' || q.id
           and a.after ->> 'mode' = q.mode
         order by a.id desc
         limit 1) as a on true
 cross join lateral (
        select count(*) as due,
               min(j.available_at) as since
          from pawl.job as j
         where j.status = 'pending'
           and j.queue = q.name
           and j.available_at <= clock_timestamp()
           and (q.mode = 'paused' or j.attempts = 0 and j.crashes = 0)) as d
 where q.mode <> 'running'
   and d.since < clock_timestamp() - $1 * interval '1 millisecond'
 order by q.name`, l.Overdue.Milliseconds())
}

func checkSchedules(ctx context.Context, db DB, l Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, name string) Finding {
		return Finding{What: what, Why: "no keeper enqueues its ticks: none runs, or none that can read it",
			Fix: "run a schedule.Keeper, with Config.Cron if the schedule is a cron expression; or pause it: pawl schedules pause " + name}
	}, `select 'schedule ' || s.name || ' should have ticked at ' || date_trunc('second', coalesce(s.next_at, s.since_at)), quote_literal(s.name)
  from pawl.schedule as s
 where not s.paused
   and coalesce(s.next_at, s.since_at) < clock_timestamp() - $1 * interval '1 millisecond'
 order by s.name`, l.Waiting.Milliseconds())
}

func checkCrashes(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix,
			Why: "their process died under them, or was silent for longer than its lease: each such attempt is run again beside what is left of the first"}
	}, `select count(*) || ' jobs of kind ' || j.kind || ' in queue ' || j.queue || ' have lost their worker, up to ' || max(j.crashes) || ' times',
       'look for the out-of-memory killer and for pauses of the process; if it was alive, raise Lease above its longest pause; pawl jobs list --queue '
         || quote_literal(j.queue) || ' --kind ' || quote_literal(j.kind)
  from pawl.job as j
 where j.crashes > 0
 group by j.queue, j.kind
 order by j.queue, j.kind`)
}

func checkRetention(ctx context.Context, db DB, l Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "nobody purges: the table grows without bound"}
	}, `with recursive names (name) as ( -- one step of the primary key each
  (select i.consumer::text
     from pawl.inbox as i
    order by i.consumer
    limit 1)
   union all
  select (select i.consumer::text
            from pawl.inbox as i
           where i.consumer > n.name
           order by i.consumer
           limit 1)
    from names as n
   where n.name is not null
)
select 'pawl.' || t.name || ' has rows whose memory has been over for ' || $1::bigint / 3600000 || ' hours', 'run every hour: pawl purge --table ' || t.name || ' --reason hourly --yes'
  from (
    select 'command' as name
     where exists (select from pawl.command as c
                    where c.expires_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and c.created_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and c.status in ('succeeded', 'failed_final'))
     union all
    select 'job_key'
     where exists (select from pawl.job_key as k
                    where k.expires_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and k.created_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and not exists (select from pawl.job as j where j.id = k.job_id))
     union all
    select 'effect'
     where exists (select from pawl.effect as e
                    where e.expires_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and e.created_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and e.status in ('succeeded', 'failed_final'))) as t
 union all
select 'pawl.inbox has deliveries that consumer ' || c.name || ' need not remember for ' || $1::bigint / 3600000 || ' hours',
       'a flow of that consumer purges while it runs; if none will again: pawl purge --table inbox --consumer ' || quote_literal(c.name)
         || ' --older-than ' || c.window_ms / 3600000 + 1 || 'h --reason retention --yes'
  from pawl.consumer as c
 where exists (select from pawl.inbox as i
                where i.received_at < clock_timestamp() - (1.1 * c.window_ms + 3600000 + $1::bigint) * interval '1 millisecond'
                  and i.consumer = c.name
                  and not exists (select from pawl.job as j where j.id = i.job_id))
 union all
select 'pawl.inbox has deliveries of more than ' || 28 + $1::bigint / 86400000 || ' days to ' || n.name || ', which has never said for how long it remembers',
       'say it with pawl_v1.consumer_report, and run every hour: pawl purge --table inbox --consumer ' || quote_literal(n.name) || ' --older-than 672h --reason hourly --yes'
  from names as n
 where not exists (select from pawl.consumer as c where c.name = n.name)
   and exists (select from pawl.inbox as i
                where i.received_at < clock_timestamp() - interval '28 days' - $1::bigint * interval '1 millisecond'
                  and i.consumer = n.name
                  and not exists (select from pawl.job as j where j.id = i.job_id))`, l.Overdue.Milliseconds())
}

func checkRedelivery(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "what comes again after it was forgotten is not known to be a duplicate"}
	}, `select 'consumer ' || c.name || ' remembers for ' || c.window_ms / 3600000 || ' hours, and its source may deliver for ' || c.horizon_ms / 3600000 || ' hours',
       'raise the Retention of that consumer'
  from pawl.consumer as c
 where c.window_ms < c.horizon_ms
 union all
select count(*) || ' deliveries to queue ' || j.queue || ' were older than is remembered, and have not run',
       'raise the Retention of that consumer, then decide on each: pawl dlq list --queue ' || quote_literal(j.queue)
  from pawl.job as j
 where j.status = 'dead_letter'
   and j.last_errors -> -1 ->> 'code' = 'P4051'
 group by j.queue`)
}
