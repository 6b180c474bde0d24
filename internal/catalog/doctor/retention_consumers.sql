-- Consumers with deliveries that they have not needed to remember for $1 milliseconds.
select c.name, c.window_ms / 3600000 + 1 as purge_hours, $1::bigint / 3600000 as overdue_hours
  from pawl.consumer as c
 where exists (select from pawl.inbox as i
                where i.received_at < clock_timestamp() - (1.1 * c.window_ms + 3600000 + $1::bigint) * interval '1 millisecond'
                  and i.consumer = c.name
                  and not exists (select from pawl.job as j where j.id = i.job_id))
