-- Workers that were silent for half of their lease.
select w.id, w.name, round(extract(epoch from w.silence), 1)::text as silent, round(extract(epoch from w.lease), 1)::text as lease, w.silence_at as until
  from pawl.worker as w
 where w.silence > w.lease / 2
   and not w.seen_at + w.lease < clock_timestamp()
