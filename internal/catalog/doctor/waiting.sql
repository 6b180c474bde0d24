-- Kinds of job that have been due for $1 milliseconds while no worker runs any of them.
select count(*) as jobs, j.kind, j.queue, min(j.available_at) as since, r.all_report, r.serving, r.knowing
  from pawl.job as j
 cross join lateral (
        select bool_and(w.report is not null) is not false as all_report,
               count(*) filter (where w.report -> 'queues' ? j.queue) as serving,
               count(*) filter (where w.report -> 'queues' ? j.queue and w.report -> 'handlers' ? j.kind) as knowing
          from pawl.worker as w
         where not w.seen_at + w.lease < clock_timestamp()) as r
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
 order by j.queue, j.kind
