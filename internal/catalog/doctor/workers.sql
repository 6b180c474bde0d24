-- Silent workers that hold jobs.
select w.id, w.name, w.seen_at, w.seen_at + 2 * w.lease + interval '5 seconds' < clock_timestamp() as past_lease, count(*) as jobs
  from pawl.worker as w
  join pawl.job as j on j.claimed_by = w.id
 where w.seen_at + 2 * w.lease + interval '5 seconds' < clock_timestamp()
    or w.seen_at + interval '5 seconds' < clock_timestamp() and /* presence free */
 group by w.id
 order by w.id
