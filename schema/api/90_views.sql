-- Views for people without our tools.

-- dead_letters shows jobs that are not retried until an operator decides. 'payload' is exact;
-- payload_text shows it, with octets outside ASCII as \ooo. 'fence' is what job_retry takes, and
-- 'advice' says what to find out before you retry.
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

-- jobs shows every job that has not finished, without its payload, for people. 'worker' is the name
-- of the worker that runs it, null for none. message_key is the key of the delivery that is stored
-- in it.
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

-- lanes shows every lane, the job that has its turn ('head'), how many jobs wait behind it
-- ('waiting'), and since when ('oldest'). It counts the waiting jobs of every lane that it shows.
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

-- hot_retries shows jobs and commands with five attempts or more that are still being tried, the
-- dead letters of tomorrow. A command has the kind 'command', its scope and its key. Its 'id',
-- 'queue', max_attempts, 'crashes' and available_at are null, because its callers decide when they
-- try again. For a job 'scope' and 'key' are null. It reads both tables.
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

-- backlog shows each queue with a job that has not finished. 'due' jobs may be claimed now, the
-- first of them since due_since. 'later' jobs wait for their time, and 'waiting' ones for their
-- turn in a lane. 'dead' and 'unknown' jobs need an operator. lanes_blocked lanes wait behind a
-- dead letter or an unknown job. 'mode' says which jobs of the queue may be claimed: see queue_set.
-- It reads the whole table.
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

-- queues shows the queues with options that were set by queue_set. 'processing' is the number of
-- its running jobs. 'begun' is the number that were tried before and wait for another try. A
-- draining queue is drained when both are 0. A queue that is not in the view has the defaults.
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

-- archive shows jobs that finished, of queues with an archive, in no particular order. 'fence' is
-- that of the attempt that finished. 'lane' and 'position' are null for a job in none. It has
-- indexes on 'id', and on 'queue' with finished_at. A query that stays open keeps archive_sweep
-- from emptying the tables that it reads.
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

-- outbox_pending shows the events that are not published, including dead letters. published_at is
-- null here.
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

-- outbox_events shows the events of outbox_pending, and those that were published in the last seven
-- days by a sink whose queue has an archive: status 'succeeded', and published_at.
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

-- outbox_lag shows how far each sink is behind, by event_type: how many events are 'pending' and
-- 'dead', the 'oldest' of those pending, and its age as 'lag'. It reads all that is pending.
create or replace view pawl_v1.outbox_lag as
select p.sink,
       p.event_type,
       count(*) filter (where p.status not in ('dead_letter', 'cancelled')) as pending,
       count(*) filter (where p.status = 'dead_letter') as dead,
       min(p.created_at) filter (where p.status not in ('dead_letter', 'cancelled')) as oldest,
       clock_timestamp() - min(p.created_at) filter (where p.status not in ('dead_letter', 'cancelled')) as lag
  from pawl_v1.outbox_pending as p
 group by p.sink, p.event_type;

-- outbox_heads shows the event that each aggregate waits for, its 'age', and how many are 'waiting'
-- behind it. A head that is a 'dead_letter' blocks its aggregate until an operator calls job_retry
-- or job_discard on it, or lane_unblock on the lane.
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
