-- Queues with deliveries that arrived later than the memory window.
select count(*) as deliveries, j.queue
  from pawl.job as j
 where j.status = 'dead_letter'
   and j.last_errors -> -1 ->> 'code' = 'P4051'
 group by j.queue
