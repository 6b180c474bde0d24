-- A shop in the middle of its day, for pictures and checks: one of everything, and more of what
-- lists show.
insert into pawl.worker (name, seen_at, lease, presence, report)
values ('orders-7c9f', clock_timestamp(), '1 hour', false, '{"wakeups": "on", "queues": ["orders", "inbox/orders"]}'),
       ('orders-81d2', clock_timestamp(), '1 hour', false, '{"wakeups": "on", "queues": ["orders", "inbox/orders"]}'),
       ('mail-2b40', clock_timestamp() - interval '95 seconds', '30 seconds', false, '{"wakeups": "on", "queues": ["mail"]}');
insert into pawl.queue (name, mode, archive) values ('reports', 'paused', true);
insert into pawl.consumer (name, window_ms, horizon_ms, seen_at) values ('orders', 1209600000, 345600000, clock_timestamp()), ('payments', 2592000000, 259200000, clock_timestamp());

insert into pawl.lane (queue, name) values ('orders', 'account 7'), ('orders', 'account 12'), ('outbox/main', 'order-1017');
insert into pawl.job (queue, kind, payload, headers, status, lane_id, position, lane_head, claimed_by, fence, attempts, crashes, created_at, available_at, last_errors)
select j.queue, j.kind, convert_to(j.payload, 'UTF8'), j.headers::jsonb, j.status, l.id, j.position, j.head, j.worker, j.fence, j.attempts, j.crashes,
       clock_timestamp() - j.age::interval, clock_timestamp() + j.due::interval, j.errors::jsonb
  from (values
    ('orders', 'charge', '{"account": 7, "cents": 1999}', null, 'dead_letter', 'account 7', 1, true, null, 3, 25, 0, '3 hours', '0',
      '[{"at": "2026-11-23T08:14:07Z", "attempt": 24, "code": "23514", "error": "new row for relation \"account\" violates check constraint \"balance\"", "fence": 2, "worker": "orders-7c9f"}, {"at": "2026-11-23T08:31:12Z", "attempt": 25, "code": "23514", "error": "new row for relation \"account\" violates check constraint \"balance\"", "fence": 3, "worker": "orders-81d2"}]'),
    ('orders', 'charge', '{"account": 7, "cents": 250}', null, 'waiting', 'account 7', 2, false, null, 0, 0, 0, '170 minutes', '0', null),
    ('orders', 'charge', '{"account": 7, "cents": 4000}', null, 'waiting', 'account 7', 3, false, null, 0, 0, 0, '2 hours', '0', null),
    ('orders', 'charge', '{"account": 12, "cents": 120}', null, 'processing', 'account 12', 4, true, 1, 9, 1, 0, '4 seconds', '-3 seconds', null),
    ('orders', 'invoice', '{"order": 1017}', null, 'pending', null, null, false, null, 4, 2, 1, '40 seconds', '12 seconds',
      '[{"at": "2026-11-23T10:02:31Z", "attempt": 1, "code": "crash", "error": "the worker died or froze past its lease", "fence": 3, "worker": "mail-2b40"}]'),
    ('inbox/orders', 'delivery', '{"order": 1017}', '{"pawl-key": "order-1017", "pawl-inbox-key": "order-1017"}', 'processing', null, null, false, 2, 2, 2, 1, '2 minutes', '-1 minute', null),
    ('inbox/payments', 'delivery', '{"payment": "py_1"}', '{"pawl-key": "evt_301", "pawl-inbox-key": "pawl/1"}', 'dead_letter', null, null, false, null, 1, 1, 0, '5 hours', '0',
      '[{"at": "2026-11-23T06:40:00Z", "attempt": 1, "code": "P4002", "error": "the key was used with another payload", "fence": 1}]'),
    ('pay', 'payment', '{"order": 990}', null, 'unknown', null, null, false, null, 5, 1, 0, '50 minutes', '0',
      '[{"at": "2026-11-23T09:20:00Z", "attempt": 1, "code": "P4006", "error": "the call may have been executed", "fence": 5, "worker": "orders-7c9f"}]'),
    ('reports', 'monthly', '{}', null, 'cancelled', null, null, false, null, 2, 1, 0, '1 day', '0', null),
    ('outbox/main', 'pawl.event', '{"order": 1017}', '{"ce-id": "7b1", "ce-type": "order.placed", "ce-source": "shop", "ce-subject": "order-1017"}', 'pending', 'order-1017', 5, true, null, 0, 0, 0, '2 seconds', '0', null))
       as j (queue, kind, payload, headers, status, lane, position, head, worker, fence, attempts, crashes, age, due, errors)
  left join pawl.lane as l on l.queue = j.queue and l.name = j.lane
 -- job 1 is the first
 order by array_position(array['3 hours', '170 minutes', '2 hours'], j.age) nulls last;
update pawl.job
   set last_errors = jsonb_build_array(jsonb_build_object('at', clock_timestamp() - interval '70 seconds', 'attempt', 1, 'code', 'crash',
         'error', 'the worker died or froze past its lease', 'fence', 1, 'worker', 'orders-44aa', 'lease_ended_at', clock_timestamp() - interval '72 seconds'))
 where queue = 'inbox/orders';
insert into pawl.stale_write (kind, scope, key, fence, worker, at)
select 'job', j.queue, j.id::text, 1, 'orders-44aa', clock_timestamp() - interval '48 seconds' from pawl.job as j where j.queue = 'inbox/orders';
insert into pawl.job (queue, kind, payload, status, attempts, created_at, last_errors)
select 'mail', 'welcome', '{}', 'dead_letter', 25, clock_timestamp() - interval '9 hours' - n * interval '7 seconds',
       '[{"at": "2026-11-23T03:00:00Z", "attempt": 25, "error": "smtp: connection refused", "fence": 25, "worker": "mail-2b40"}]'
  from generate_series(1, 12400) as n;
insert into pawl.job (queue, kind, payload, created_at, available_at)
select 'orders', 'charge', '{}', clock_timestamp() - n * interval '40 milliseconds', clock_timestamp() - n * interval '40 milliseconds' from generate_series(1, 120) as n;

insert into pawl.inbox (consumer, key, hash, received_at, processed_at, job_id)
select 'orders', 'order-1017', sha256('x'), clock_timestamp() - interval '121 seconds', null, j.id from pawl.job as j where j.queue = 'inbox/orders'
 union all
select 'payments', 'evt_300', sha256('x'), clock_timestamp() - interval '6 hours', clock_timestamp() - interval '6 hours', null;
insert into pawl.delivery (consumer, key, received_at, headers, payload, verified_by)
values ('payments', 'evt_300', clock_timestamp() - interval '6 hours', '{"Stripe-Signature": "t=1,v1=…"}', '{"id": "evt_300"}', 'stripe');
insert into pawl.sequence_gate (consumer, resource, last) values ('payments', 'account 31', 17);
insert into pawl.sequence_gate_held (consumer, resource, seq, job_id) select 'payments', 'account 31', 19, max(j.id) from pawl.job as j;
insert into pawl.job_key (queue, key, hash, job_id, created_at, expires_at)
select 'orders', 'invoice-1017', sha256('x'), j.id, j.created_at, clock_timestamp() + interval '1 day' from pawl.job as j where j.kind = 'invoice';

insert into pawl.command (scope, key, hash, created_at, updated_at, expires_at, status, claimed_by, lease_expires_at, response_status, response_body)
values ('POST /charges', 'f3c1-9d', sha256('x'), clock_timestamp() - interval '20 minutes', clock_timestamp() - interval '19 minutes', clock_timestamp() + interval '1 day', 'unknown', 'api-3', clock_timestamp() - interval '19 minutes', null, null),
       ('POST /charges', 'a001-77', sha256('x'), clock_timestamp() - interval '2 minutes', clock_timestamp() - interval '2 minutes', clock_timestamp() + interval '1 day', 'succeeded', 'api-1', null, 201, '{"id": "ch_81"}');
insert into pawl.step (scope, key, step, hash, fence, created_at, updated_at, expires_at, status, recovery, provider, provider_key, reference, job_id)
select 'job/pay', '990@1', 'pay', sha256('x'), 31, clock_timestamp() - interval '50 minutes', clock_timestamp() - interval '49 minutes', clock_timestamp() + interval '7 days', 'unknown', 'at_most_once', 'bank', 'pawl-9f31', null, j.id
  from pawl.job as j where j.queue = 'pay'
 union all
select 'inbox/orders', 'order-1017', 'charge', sha256('x'), 44, clock_timestamp() - interval '115 seconds', clock_timestamp() - interval '50 seconds', clock_timestamp() + interval '7 days', 'succeeded', 'keyed', 'stripe', 'pawl-77ac', 'ch_80', null;
insert into pawl.step_call (fence, scope, key, step, probe, started_at, not_after, ended_at, outcome, reference, detail)
values (31, 'job/pay', '990@1', 'pay', false, clock_timestamp() - interval '50 minutes', clock_timestamp() - interval '49 minutes', clock_timestamp() - interval '49 minutes', 'ambiguous', null, '{"error": "EOF"}'),
       (43, 'inbox/orders', 'order-1017', 'charge', false, clock_timestamp() - interval '114 seconds', clock_timestamp() - interval '100 seconds', null, null, null, '{}'),
       (44, 'inbox/orders', 'order-1017', 'charge', false, clock_timestamp() - interval '52 seconds', clock_timestamp() - interval '40 seconds', clock_timestamp() - interval '50 seconds', 'executed', 'ch_80', '{}');

insert into pawl.schedule (name, next_at, every_ms, cron, time_zone, queue, kind, payload, paused)
values ('nightly report', clock_timestamp() + interval '5 hours', null, '0 3 * * *', 'Europe/Berlin', 'reports', 'monthly', '{}', false),
       ('reconcile', clock_timestamp() + interval '20 seconds', 60000, null, null, 'pay', 'reconcile', '{}', true);
insert into pawl.audit (at, actor, verb, target, reason, before)
values (clock_timestamp() - interval '3 hours', 'ann@example.com', 'queue_set', 'queue reports', 'the numbers are wrong: nothing may read them', '{}'),
       (clock_timestamp() - interval '90 seconds', 'ben@example.com', 'inbox_replay', 'inbox orders order-1017', 'the customer asks', '{}');

-- A day and a week of counts: quiet nights, a bad hour in the morning.
insert into pawl.rollup (span, at, kind, source, scope, name, value)
select s.span, date_trunc(s.span, now(), 'UTC') - s.n * ('1 ' || s.span)::interval, c.kind, c.source, c.scope, c.name,
       case when c.name like 'workers%' then c.size else (c.size * case when s.span = 'hour' and c.kind = 'count' then 60 else 1 end
        * (0.7 + 0.3 * sin((case s.span when 'hour' then s.n else s.n / 60.0 end + c.phase) * pi() / 12) + (s.n * 7 % 5) / 20.0)
        * case when c.bad and s.n between 20 and 45 then 6 else 1 end)::bigint end
  from (select 'minute' as span, n from generate_series(1, 1439) as n union all select 'hour', n from generate_series(1, 167) as n) as s
 cross join (values
    ('count', 'consumer', 'orders', 'succeeded', 240, 3, false), ('count', 'queue', 'orders', 'succeeded', 180, 2, false), ('count', 'consumer', 'orders', 'duplicate_skipped', 35, 3, true),
    ('count', 'queue', 'mail', 'retryable', 4, 1, true), ('count', 'queue', 'mail', 'failed', 1, 1, true), ('count', 'queue', '', 'stale_takeover', 1, 5, true),
    ('level', 'queue', '', 'oldest_due_ms', 900, 1, true), ('level', 'queue', '', 'due', 80, 1, true), ('level', 'queue', '', 'processing', 14, 1, false),
    ('level', 'queue', '', 'dead_letters', 2100, 1, true), ('level', 'queue', '', 'unknown', 2, 1, false), ('level', 'queue', '', 'workers', 3, 1, false),
    ('level', 'queue', '', 'workers_silent', 0, 1, false), ('level', 'queue', 'orders', 'due', 60, 1, true), ('level', 'queue', 'orders', 'oldest_due_ms', 700, 1, true),
    ('level', 'queue', 'orders', 'processing', 12, 1, false)) as c (kind, source, scope, name, size, phase, bad);

-- The rows above have numbers of their own: the sequences go on behind them.
select setval('pawl.fence_seq', 1000000), setval('pawl.position_seq', 1000000);
