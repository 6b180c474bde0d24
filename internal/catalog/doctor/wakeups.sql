-- Causes that keep enqueues from waking workers: the server's setting, or a worker that does not
-- listen. presence.sql finds workers behind a pooler.
select 'server' as scope, 0::bigint as worker_id, '' as worker_name, current_setting('max_prepared_transactions') as state
 where current_setting('max_prepared_transactions') <> '0'
   and exists (
         select
           from pawl.worker as w
          where w.report ->> 'wakeups' = 'on'
            and not w.seen_at + w.lease < clock_timestamp())
union all
(select w.report ->> 'wakeups', w.id, w.name, null
  from pawl.worker as w
 where w.report ->> 'wakeups' in ('off', 'none')
   and (w.report ->> 'pooled')::boolean is not true
   and not w.seen_at + w.lease < clock_timestamp()
 order by w.id)
