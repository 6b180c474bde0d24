-- Queues that an operator has paused or is draining, with jobs due for $1 milliseconds.
select q.name as queue, q.mode, d.due, d.since, a.actor, a.at, a.reason
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
 order by q.name
