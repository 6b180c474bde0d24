-- Consumers that reported in the last 3 minutes that they receive nothing, or one delivery at a
-- time. They report it once a minute.
select r.scope as name, 'inbox/' || r.scope as queue, max(r.at) as at, d.dead
  from pawl.rollup as r
 cross join lateral (
        select count(*) as dead
          from (select from pawl.job as j
                 where j.queue = 'inbox/' || r.scope
                   and j.status = 'dead_letter'
                 limit 1000) as j) as d
 where r.span = 'minute'
   and r.at > clock_timestamp() - interval '3 minutes'
   and r.kind = 'count'
   and r.source = 'consumer'
   and r.name = 'receive_paused'
 group by r.scope, d.dead
 order by r.scope
