-- Workers that take their presence lock through a pooler, which does not keep it.
select w.id as worker_id, w.name as worker_name
  from pawl.worker as w
 where (w.report ->> 'pooled')::boolean
   and not w.seen_at + w.lease < clock_timestamp()
 order by w.id
