-- Views for people without our tools.

-- dead_letters shows jobs that wait for an operator. payload_text has non-ASCII octets as \ooo.
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

-- jobs shows every unfinished job, without its payload.
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

-- lanes shows each lane, its head and its number of waiting jobs. Each row counts them.
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

-- hot_retries shows retried jobs and commands with five or more attempts. It reads both tables.
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
-- Callers retry commands, so there is no limit and no time of the next attempt.
select null, null, 'command', c.status::text, c.attempts::int, null, null, c.failure_message::text, null, c.created_at,
       c.scope::text, c.key::text
  from pawl.command as c
 where c.attempts >= 5
   and c.status in ('processing', 'failed_retryable');

-- backlog counts unfinished jobs per queue: due now, due later, waiting in a lane, processing, dead
-- and unknown (both need an operator), cancelled. due_since: oldest due job. lanes_blocked: lanes
-- that do not move. mode says which jobs may be claimed. It reads the whole table.
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

-- queues shows queues with settings, how many of their jobs are running, and how many were begun
-- and wait for a retry. A draining queue still runs those. Others have the defaults.
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

-- archive shows jobs that finished in the last seven days, for queues with an archive, unordered.
-- It has indexes on id, and on queue with finished_at.
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

-- outbox_pending shows unpublished events, including dead letters. published_at is null here.
create or replace view pawl_v1.outbox_pending as
select j.id as job_id,
       substr(j.queue, 8) as sink, -- after 'outbox/'
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

-- outbox_events also shows events published in the last seven days, for queues with an archive.
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

-- outbox_lag shows how far each sink is behind, by event type. It reads all pending events.
create or replace view pawl_v1.outbox_lag as
select p.sink,
       p.event_type,
       count(*) filter (where p.status not in ('dead_letter', 'cancelled')) as pending,
       count(*) filter (where p.status = 'dead_letter') as dead,
       min(p.created_at) filter (where p.status not in ('dead_letter', 'cancelled')) as oldest,
       clock_timestamp() - min(p.created_at) filter (where p.status not in ('dead_letter', 'cancelled')) as lag
  from pawl_v1.outbox_pending as p
 group by p.sink, p.event_type;

-- outbox_heads shows the event that each aggregate waits for, its age, and how many events wait
-- behind it. A dead letter at the head blocks its lane: see lane_unblock.
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
