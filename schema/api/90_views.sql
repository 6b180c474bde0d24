-- What people look at without our tools.

-- Jobs nobody will try again until an operator decides. payload_text shows octets outside ASCII as \ooo.
create or replace view pawl_v1.dead_letters as
select j.id,
       j.queue,
       j.kind,
       j.status,
       j.attempts,
       j.crashes,
       j.last_errors -> -1 ->> 'error' as last_error,
       j.last_errors,
       j.headers,
       j.payload,
       encode(j.payload, 'escape') as payload_text,
       j.created_at,
       j.fence,
       case j.status
         when 'unknown' then 'its step needs a verdict: see pawl_v1.steps, step_settle'
         else pawl_v1._dead_letter_advice(j)
       end as advice
  from pawl.job as j
 where j.status in ('dead_letter', 'unknown');

-- Every job that has not finished, payload left out.
create or replace view pawl_v1.jobs as
select j.id,
       j.queue,
       j.kind,
       j.status,
       j.priority,
       j.attempts,
       j.max_attempts,
       j.crashes,
       j.fence,
       j.available_at,
       j.created_at,
       w.name as worker,
       j.last_errors -> -1 ->> 'error' as last_error,
       octet_length(j.payload) as payload_octets,
       l.name as lane,
       j.last_errors -> -1 ->> 'code' as last_code,
       j.headers ->> 'pawl-key' as message_key -- of a stored delivery
  from pawl.job as j
  left join pawl.worker as w on w.id = j.claimed_by
  left join pawl.lane as l on l.id = j.lane_id;

-- Lanes, what has the turn in each, and how many wait for it. Counts the waiting of every lane it shows.
create or replace view pawl_v1.lanes as
select l.id,
       l.queue,
       l.name,
       l.policy,
       h.id as head,
       h.status as head_status,
       w.waiting,
       w.oldest
  from pawl.lane as l
  left join pawl.job as h on h.lane_id = l.id and h.lane_head
 cross join lateral (
        select count(*) as waiting,
               min(j.created_at) as oldest
          from pawl.job as j
         where j.lane_id = l.id
           and j.status = 'waiting') as w;

-- Jobs and commands that keep failing and are still being tried: the dead letters of tomorrow. Reads both tables.
create or replace view pawl_v1.hot_retries as
select j.id,
       j.queue::text as queue,
       j.kind::text as kind,
       j.status::text as status,
       j.attempts::int as attempts,
       j.max_attempts::int as max_attempts,
       j.crashes::int as crashes,
       j.last_errors -> -1 ->> 'error' as last_error,
       j.available_at,
       j.created_at,
       null::text as scope,
       null::text as key
  from pawl.job as j
 where j.attempts >= 5
   and j.status in ('pending', 'waiting', 'processing')
 union all
-- A command's retries are made by its callers, so it has no limit of them and no time of the next.
select null, null, 'command', c.status::text, c.attempts::int, null, null, c.failure_message::text, null, c.created_at,
       c.scope::text, c.key::text
  from pawl.command as c
 where c.attempts >= 5
   and c.status in ('processing', 'failed_retryable');

-- Each queue with a job that has not finished: how many may be claimed now (due), wait for their time (later) or for their turn
-- (waiting), are being worked on, and wait for somebody (dead, unknown); since when the first of those that are due is; the
-- lanes that stand; and what of the queue may be claimed. Reads the whole table.
create or replace view pawl_v1.backlog as
select j.queue,
       count(*) filter (where j.status = 'pending' and j.available_at <= clock_timestamp()) as due,
       count(*) filter (where j.status = 'pending' and j.available_at > clock_timestamp()) as later,
       count(*) filter (where j.status = 'waiting') as waiting,
       count(*) filter (where j.status = 'processing') as processing,
       count(*) filter (where j.status = 'dead_letter') as dead,
       count(*) filter (where j.status = 'unknown') as unknown,
       count(*) filter (where j.status = 'cancelled') as cancelled,
       min(j.available_at) filter (where j.status = 'pending' and j.available_at <= clock_timestamp()) as due_since,
       count(*) filter (where j.lane_head and j.status in ('dead_letter', 'unknown')) as lanes_blocked,
       coalesce((select q.mode from pawl.queue as q where q.name = j.queue), 'running') as mode
  from pawl.job as j
 group by j.queue;

-- What was set for queues, and how many of their jobs are running or were begun and wait for another try: what a queue that drains
-- still has before it. A queue that is not in it has the defaults.
create or replace view pawl_v1.queues as
select q.id,
       q.name,
       q.archive,
       q.mode,
       h.processing,
       b.begun
  from pawl.queue as q
 cross join lateral (
        select count(*) as processing
          from pawl.job as j
         where j.claimed_by is not null
           and j.queue = q.name) as h
 cross join lateral (
        select count(*) as begun
          from pawl.job as j
         where j.status = 'pending'
           and (j.attempts > 0 or j.crashes > 0)
           and j.queue = q.name) as b;

-- Jobs that finished in the last seven days, of queues with an archive. To find a job by its id, or those of a queue by
-- finished_at, there is an index; in no particular order.
create or replace view pawl_v1.archive as
select a.id,
       a.queue,
       a.kind,
       a.lane,
       a.position,
       a.priority,
       a.attempts,
       a.crashes,
       a.fence,
       a.created_at,
       a.finished_at,
       a.headers,
       a.payload
  from pawl.archive_0 as a
 union all
select a.id, a.queue, a.kind, a.lane, a.position, a.priority, a.attempts, a.crashes, a.fence,
       a.created_at, a.finished_at, a.headers, a.payload
  from pawl.archive_1 as a
 union all
select a.id, a.queue, a.kind, a.lane, a.position, a.priority, a.attempts, a.crashes, a.fence,
       a.created_at, a.finished_at, a.headers, a.payload
  from pawl.archive_2 as a
 union all
select a.id, a.queue, a.kind, a.lane, a.position, a.priority, a.attempts, a.crashes, a.fence,
       a.created_at, a.finished_at, a.headers, a.payload
  from pawl.archive_3 as a
 union all
select a.id, a.queue, a.kind, a.lane, a.position, a.priority, a.attempts, a.crashes, a.fence,
       a.created_at, a.finished_at, a.headers, a.payload
  from pawl.archive_4 as a
 union all
select a.id, a.queue, a.kind, a.lane, a.position, a.priority, a.attempts, a.crashes, a.fence,
       a.created_at, a.finished_at, a.headers, a.payload
  from pawl.archive_5 as a
 union all
select a.id, a.queue, a.kind, a.lane, a.position, a.priority, a.attempts, a.crashes, a.fence,
       a.created_at, a.finished_at, a.headers, a.payload
  from pawl.archive_6 as a
 union all
select a.id, a.queue, a.kind, a.lane, a.position, a.priority, a.attempts, a.crashes, a.fence,
       a.created_at, a.finished_at, a.headers, a.payload
  from pawl.archive_7 as a;

-- Events that are not published yet, dead letters included. published_at is null here; see outbox_events.
create or replace view pawl_v1.outbox_pending as
select j.id as job_id,
       substr(j.queue, 8) as sink, -- behind 'outbox/'
       j.headers ->> 'ce-id' as event_id,
       j.headers ->> 'ce-type' as event_type,
       j.headers ->> 'pawl-aggregate-type' as aggregate_type,
       j.headers ->> 'pawl-aggregate-id' as aggregate_id,
       j.position,
       j.status,
       j.attempts as attempt_count,
       j.last_errors -> -1 ->> 'error' as last_error,
       j.created_at,
       null::timestamptz as published_at
  from pawl.job as j
 where j.queue >= 'outbox/'
   and j.queue < 'outbox0'
   and j.kind = 'event';

-- The same, and those that were published in the last seven days through a sink whose queue has an archive.
create or replace view pawl_v1.outbox_events as
select p.*
  from pawl_v1.outbox_pending as p
 union all
select a.id, substr(a.queue, 8), a.headers ->> 'ce-id', a.headers ->> 'ce-type', a.headers ->> 'pawl-aggregate-type',
       a.headers ->> 'pawl-aggregate-id', a.position, 'succeeded', a.attempts, null, a.created_at, a.finished_at
  from pawl_v1.archive as a
 where a.queue >= 'outbox/'
   and a.queue < 'outbox0'
   and a.kind = 'event';

-- How far each sink is behind, by event type. Reads all that is pending.
create or replace view pawl_v1.outbox_lag as
select p.sink,
       p.event_type,
       count(*) filter (where p.status not in ('dead_letter', 'cancelled')) as pending,
       count(*) filter (where p.status = 'dead_letter') as dead,
       min(p.created_at) filter (where p.status not in ('dead_letter', 'cancelled')) as oldest,
       clock_timestamp() - min(p.created_at) filter (where p.status not in ('dead_letter', 'cancelled')) as lag
  from pawl_v1.outbox_pending as p
 group by p.sink, p.event_type;

-- The event that each aggregate waits for, how old it is, and how many stand behind it. A head that is a dead letter is the
-- policy block at work: see lane_unblock.
create or replace view pawl_v1.outbox_heads as
select p.job_id,
       p.sink,
       l.name as lane,
       p.event_type,
       p.aggregate_type,
       p.aggregate_id,
       l.policy,
       p.status,
       p.attempt_count,
       p.last_error,
       p.created_at,
       clock_timestamp() - p.created_at as age,
       w.waiting
  from pawl.lane as l
  join pawl.job as h on h.lane_id = l.id and h.lane_head
  join pawl_v1.outbox_pending as p on p.job_id = h.id
 cross join lateral (
        select count(*) as waiting
          from pawl.job as j
         where j.lane_id = l.id
           and j.status = 'waiting') as w;

revoke all on all functions in schema pawl_v1 from public;
