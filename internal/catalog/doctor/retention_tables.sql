-- Tables with rows that expired $1 milliseconds ago.
select t.name, $1::bigint / 3600000 as overdue_hours
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
    select 'step'
     where exists (select from pawl.step as e
                    where e.expires_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and e.created_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and e.status in ('succeeded', 'failed_final'))) as t
