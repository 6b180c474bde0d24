-- Schedules whose tick is $1 milliseconds late.
select s.name, coalesce(s.next_at, s.since_at) as tick_at
  from pawl.schedule as s
 where not s.paused
   and coalesce(s.next_at, s.since_at) < clock_timestamp() - $1 * interval '1 millisecond'
 order by s.name
