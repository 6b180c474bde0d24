-- Jobs that lost their worker.
select count(*) as jobs, j.kind, j.queue, max(j.crashes) as crashes
  from pawl.job as j
 where j.crashes > 0
 group by j.queue, j.kind
 order by j.queue, j.kind
