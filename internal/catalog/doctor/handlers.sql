-- Handlers that take nearly as long as their limit.
select h.kind, w.id, w.name, h.p99_ms::text as p99_ms, h.timeout_ms::text as timeout_ms, h.drain_ms::text as drain_ms, h.p99_ms >= 0.8 * h.timeout_ms as by_timeout
  from pawl.worker as w
 cross join lateral (
        select e.key as kind,
               (e.value ->> 'p99_ms')::numeric as p99_ms,
               (e.value ->> 'timeout_ms')::numeric as timeout_ms,
               (w.report ->> 'drain_ms')::numeric as drain_ms,
               (e.value ->> 'runs')::numeric as runs
          from jsonb_each(w.report -> 'handlers') as e) as h
 where h.runs >= 20
   and h.p99_ms >= least(0.8 * h.timeout_ms, h.drain_ms)
   and not w.seen_at + w.lease < clock_timestamp()
