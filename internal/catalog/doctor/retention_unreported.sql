-- Consumers that never reported how long they remember, with deliveries older than 28 days and $1
-- milliseconds.
with recursive names (name) as ( -- one step of the primary key each
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
select n.name, 28 + $1::bigint / 86400000 as days
  from names as n
 where not exists (select from pawl.consumer as c where c.name = n.name)
   and exists (select from pawl.inbox as i
                where i.received_at < clock_timestamp() - interval '28 days' - $1::bigint * interval '1 millisecond'
                  and i.consumer = n.name
                  and not exists (select from pawl.job as j where j.id = i.job_id))
