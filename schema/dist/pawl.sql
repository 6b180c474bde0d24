-- Pawl's schema, generated from schema/. Apply with: psql -v ON_ERROR_STOP=1 -f pawl.sql

begin;
set local lock_timeout = '5s';

do $$
begin
  perform pg_catalog.set_config('pawl.search_path', pg_catalog.current_setting('search_path'), true),
          pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
end
$$;

-- The tables. Reasons for each choice: docs/decisions/0003-tables.md.
--
-- Every name that is part of an identity is text in collation "C" with a bound in octets. A
-- collation of the operating system's library can change with an upgrade. An index would then miss
-- rows, and duplicates would pass unnoticed.

-- CREATE SCHEMA IF NOT EXISTS requires CREATE on the database even if the schema exists.
do $$
begin
  if to_regnamespace('pawl') is null then
    create schema pawl;
  end if;
  if to_regnamespace('pawl_v1') is null then
    create schema pawl_v1;
  end if;
end
$$;

-- Domains hold the checks of single columns. A statement reads and parses the CHECK constraints of
-- a table each time it runs. Domain checks are cached and run for written columns only.
create domain pawl.name as text collate "C" check (octet_length(value) between 1 and 255);
create domain pawl.hash as bytea check (octet_length(value) = 32); -- SHA-256
create domain pawl.count as smallint check (value >= 0);
create domain pawl.max_attempts as smallint check (value between 1 and 1000);
create domain pawl.priority as smallint check (value between 1 and 4);
create domain pawl.job_status as text collate "C" check (value in (
  'pending', 'waiting', 'processing', 'unknown', 'dead_letter', 'cancelled', 'succeeded'));
create domain pawl.command_status as text collate "C" check (value in (
  'processing', 'succeeded', 'failed_retryable', 'failed_final', 'unknown'));
create domain pawl.step_status as text collate "C" check (value in ('planned', 'succeeded', 'failed_final', 'unknown'));
create domain pawl.step_recovery as text collate "C" check (value in (
  'keyed', 'checked', 'at_most_once', 'repeatable', 'accept_duplicates'));
create domain pawl.call_outcome as text collate "C" check (value in (
  'executed', 'refused', 'not_sent', 'ambiguous', 'not_executed', 'cannot_tell'));
create domain pawl.ordinal as int check (value >= 1);
create domain pawl.http_status as smallint check (value between 100 and 999);
-- Stored parts of a response.
create domain pawl.octets as bytea check (octet_length(value) <= 4194304);
create domain pawl.message as text collate "C" check (octet_length(value) <= 16000);

create table pawl.migration (
  version    int primary key,
  name       text not null,
  min_client int not null,       -- the oldest client version that understands this schema
  api_hash   text not null,      -- SHA-256 of the functions as installed
  applied_at timestamptz not null default clock_timestamp()
);

-- One row per worker process incarnation. It carries the lease of everything that the process has
-- claimed, so renewing is one narrow update for any number of jobs.
create table pawl.worker (
  id           bigint generated always as identity primary key,
  name         pawl.name not null,
  queues       jsonb not null default '[]',    -- queues it works on, for pawl.death
  seen_at      timestamptz not null default clock_timestamp(),
  lease        interval not null default '30 seconds' check (lease between interval '1 second' and interval '12 hours'),
  -- The process holds the advisory lock of its id, so a free lock is evidence of death.
  presence     boolean not null default false,
  suspected_at timestamptz, -- when a sweep first found it silent and its lock free
  -- The longest gap between two heartbeats, reset after an hour.
  silence      interval not null default '0',
  silence_at   timestamptz,                    -- when that gap ended
  report       jsonb,                          -- what the process reports for pawl doctor
  alone_job    bigint,                         -- the job that runs alone in the process
  alone_fence  bigint, -- fence of that attempt: the mark does not count for a later attempt
  check ((alone_job is null) = (alone_fence is null))
) with (fillfactor = 50);

-- Attempts that their worker must end, because the job was cancelled or recalled. The next
-- heartbeat returns them. They are not a column of pawl.worker: a heartbeat would then wait for
-- every open transaction that cancels a running job.
create table pawl.recall (
  id        bigint generated always as identity,
  worker_id bigint not null,
  job_id    bigint not null,
  -- Fence of the attempt; a later attempt of the same worker is not affected.
  fence     bigint not null,
  primary key (worker_id, id)
);

-- The last death of a process that worked on a queue. One row per queue, never purged.
create table pawl.death (
  queue   pawl.name primary key,
  died_at timestamptz not null
);

-- Counts for charts (see rollup_add): minutes of the last 24 hours, hours of the last 7 days.
create table pawl.rollup (
  span   text collate "C" not null check (octet_length(span) < 64 and span in ('minute', 'hour')),
  at     timestamptz not null,             -- start of the span
  -- Counts are added. For levels the maximum is kept.
  kind   text collate "C" not null check (octet_length(kind) < 64 and kind in ('count', 'level')),
  source text collate "C" not null check (octet_length(source) < 64 and source in ('queue', 'consumer')),
  -- Name of a queue or consumer. Empty: none.
  scope  text collate "C" not null check (octet_length(scope) <= 255),
  name   text collate "C" not null check (octet_length(name) <= 40),
  value  bigint not null check (value >= 0),
  primary key (span, at, kind, source, scope, name)
) with (fillfactor = 70);

-- Attempts refused after a takeover, of the last 7 days: see stale_write_add.
create table pawl.stale_write (
  kind   text collate "C" not null check (octet_length(kind) < 64 and kind in ('job', 'command')),
  scope  pawl.name not null,               -- the queue of a job
  key    pawl.name not null,               -- the id of a job
  fence  bigint not null,                  -- fence of the refused attempt
  worker pawl.name not null,
  at     timestamptz not null default clock_timestamp(),
  primary key (kind, key, scope, fence)
);
create index stale_write_at on pawl.stale_write (at);

-- One sequence for the fences of commands, calls and schedules. A key that is purged and comes
-- again must not meet an old fence of its own. Cache 1: cached numbers would be out of order.
create sequence pawl.fence_seq cache 1;

-- One sequence for all lanes, so that purging a lane's row does not lose its order.
create sequence pawl.position_seq;

-- Jobs of one lane run one at a time, in the order of their positions. A transaction that changes
-- the first job of a lane updates the lane's row before it reads the jobs. A lock alone would let a
-- REPEATABLE READ transaction act on an old snapshot.
create table pawl.lane (
  id     bigint generated always as identity primary key,
  ver    bigint not null default 0,
  kept   boolean not null default false,    -- its policy was set by hand: do not purge it
  queue  pawl.name not null,
  name   pawl.name not null,
  policy text collate "C" not null default 'block' check (octet_length(policy) < 64 and policy in ('block', 'park', 'skip')),
  unique (queue, name)
) with (fillfactor = 50);

-- Durable work: stored deliveries, background jobs and outbox events. Finished rows are deleted or
-- archived.
create table pawl.job (
  id               bigint generated always as identity primary key,
  -- + 1 at every claim and every change by hand; never decreases.
  fence            bigint not null default 0,
  claimed_by       bigint, -- while processing: worker.id, or 0 if the row has its own lease
  lane_id          bigint,
  position         bigint,                      -- position in its lane
  available_at     timestamptz not null default clock_timestamp(),
  lease_expires_at timestamptz,                 -- of a row claimed without a worker; not indexed
  created_at       timestamptz not null default clock_timestamp(),
  priority         pawl.priority not null default 2,
  attempts         pawl.count not null default 0,
  crashes          pawl.count not null default 0, -- process deaths while the job was running
  crashes_alone    pawl.count not null default 0, -- those of them while no other job was running
  max_attempts     pawl.max_attempts not null default 25,
  -- Last position of the batch that this job heads. Negative: run the jobs up to there singly.
  batch_end        bigint,
  -- It holds its lane: no other job of the lane may run. In a lane this is so while pending,
  -- processing and unknown. A dead letter that holds its lane blocks it.
  lane_head        boolean not null default false,
  status           pawl.job_status not null default 'pending',
  queue            pawl.name not null,
  kind             pawl.name not null,
  payload          bytea not null, -- exact octets, so that no encoding can change or refuse them
  headers          jsonb,
  last_errors      jsonb,                       -- the last 10, oldest first
  check ((status = 'processing') = (claimed_by is not null)),
  check (coalesce(claimed_by = 0, false) = (lease_expires_at is not null)),
  check ((lane_id is null) = (position is null))
) with (
  fillfactor = 100,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 50000
);

-- No index predicate may be implied by the WHERE clause of finish or renew. The planner would use
-- that index and read all its dead entries.
create index job_claim on pawl.job (queue, priority, available_at, id) where status = 'pending';
create index job_held  on pawl.job (claimed_by) where claimed_by is not null;
create index job_wait  on pawl.job (lane_id, position) where status = 'waiting';
create unique index job_head on pawl.job (lane_id) where lane_head;
create index job_aside on pawl.job (lane_id) where lane_id is not null and status in ('dead_letter', 'cancelled') and not lane_head;
create index job_dead  on pawl.job (queue, id) where status in ('dead_letter', 'unknown', 'cancelled');
-- left(): a refused key can exceed the size limit of an index entry.
create index job_letter on pawl.job (queue, (left(headers ->> 'pawl-key', 255)) collate "C", id)
  where status in ('dead_letter', 'unknown', 'cancelled') and headers ->> 'pawl-key' is not null;
create index job_begun on pawl.job (queue, priority, available_at, id) where status = 'pending' and (attempts > 0 or crashes > 0);

-- Settings that operators made for a queue. No row means the defaults.
create table pawl.queue (
  id      bigint generated always as identity, -- its name in the audit
  name    pawl.name primary key,
  archive boolean not null default false,      -- finished jobs are kept for seven days
  mode    text collate "C" not null default 'running' -- which jobs may be claimed
    check (octet_length(mode) < 64 and mode in ('running', 'draining', 'paused'))
);

-- Schedules. Any number of keepers enqueue the ticks. A name is at most 200 octets, because the
-- name and the time together form the key of a tick.
create table pawl.schedule (
  name       text collate "C" primary key check (octet_length(name) between 1 and 200),
  -- New at every change. A caller with an older one has seen an older row.
  fence      bigint not null default nextval('pawl.fence_seq'),
  next_at    timestamptz,                -- the next tick; null: a keeper must compute it from cron
  since_at   timestamptz not null default clock_timestamp(), -- ticks up to this time are not owed
  last_at    timestamptz,                -- the last tick that was enqueued
  created_at timestamptz not null default clock_timestamp(),
  every_ms   bigint check (every_ms between 100 and 31536000000),
  paused     boolean not null default false,
  cron       pawl.name,
  time_zone  pawl.name,                  -- of the cron expression
  missed     text collate "C" not null default 'last' check (octet_length(missed) < 64 and missed in ('last', 'all')),
  queue      pawl.name not null,
  kind       pawl.name not null,
  payload    bytea not null,
  options    jsonb not null default '{}', -- of job_enqueue
  check ((cron is null) = (time_zone is null)),
  check ((cron is null) <> (every_ms is null)),
  check (next_at > last_at),   -- no tick is made twice
  check (since_at >= last_at)
);

create index schedule_next on pawl.schedule (next_at nulls first) where not paused;

-- The archive is a ring of eight tables. A job that finishes on day n since 1970, in UTC, goes to
-- table n modulo 8. archive_sweep empties that table before its day comes again. Nothing in it is
-- unique, so that archiving a copy never refuses a finish.
create table pawl.archive_0 (
  id          bigint not null,
  fence       bigint not null, -- of the attempt that finished
  position    bigint,
  created_at  timestamptz not null,
  finished_at timestamptz not null,
  priority    pawl.priority not null,
  attempts    pawl.count not null,
  crashes     pawl.count not null,
  queue       pawl.name not null,
  kind        pawl.name not null,
  lane        pawl.name,
  payload     bytea not null,
  headers     jsonb
);

create index on pawl.archive_0 (id);
create index on pawl.archive_0 (queue, finished_at);

create table pawl.archive_1 (like pawl.archive_0 including indexes);
create table pawl.archive_2 (like pawl.archive_0 including indexes);
create table pawl.archive_3 (like pawl.archive_0 including indexes);
create table pawl.archive_4 (like pawl.archive_0 including indexes);
create table pawl.archive_5 (like pawl.archive_0 including indexes);
create table pawl.archive_6 (like pawl.archive_0 including indexes);
create table pawl.archive_7 (like pawl.archive_0 including indexes);

-- Purges walk the age indexes in order: docs/decisions/0036-purging.md.

-- Enqueue keys. A key outlives its job, so a duplicate is detected after the job has finished.
create table pawl.job_key (
  queue      pawl.name not null,
  key        pawl.name not null,
  hash       pawl.hash not null,
  job_id     bigint not null,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  primary key (queue, key),
  check (expires_at > created_at)
);

create index job_key_age on pawl.job_key (created_at);

-- A row exists if and only if the effect committed (job_id null) or a job owns the delivery.
create table pawl.inbox (
  consumer     pawl.name not null,
  key          pawl.name not null,
  hash         pawl.hash not null,
  received_at  timestamptz not null default clock_timestamp(),
  processed_at timestamptz,
  job_id       bigint,
  result_ref   text,
  primary key (consumer, key),
  check (processed_at is not null or job_id is not null)
) with (autovacuum_vacuum_insert_scale_factor = 0.05);

create index inbox_age on pawl.inbox (consumer, received_at);

-- How long consumers promise to remember deliveries, as they reported it.
create table pawl.consumer (
  name       pawl.name primary key,
  window_ms  bigint check (window_ms > 0),  -- null: for ever
  -- Longest time from sending to delivery. Null: the source does not know it.
  horizon_ms bigint check (horizon_ms > 0),
  seen_at    timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- How far purges have deleted, and how often an operator has. Without a row or a time, the consumer
-- has purged nothing.
create table pawl.forgotten (
  consumer pawl.name primary key,
  ver      bigint not null default 0, -- updated by a report and by a purge before it reads
  by_hand  bigint not null default 0, -- deliveries that operators forgot, counted by inbox_forget
  until    timestamptz -- Deliveries received up to this time may be forgotten. Later ones are not.
) with (fillfactor = 50);

-- Deliveries as received. Each consumer chooses which are kept and how long.
create table pawl.delivery (
  consumer    pawl.name not null,
  key         pawl.name not null,  -- as in the inbox
  received_at timestamptz not null default clock_timestamp(),
  headers     jsonb,
  payload     pawl.octets not null,
  verified_by pawl.name,           -- what authenticated the sender
  hash        pawl.hash,           -- as in the inbox; null like stored_as: it cannot be replayed
  -- How to store it: queue, kind, headers, lane, semantic (its second key in the inbox).
  stored_as   jsonb,
  primary key (consumer, key)
);

create index delivery_age on pawl.delivery (consumer, received_at);

-- Sequence gates: the last number that took effect. Never purged by age.
create table pawl.sequence_gate (
  consumer pawl.name not null,
  resource pawl.name not null,
  ver      bigint not null default 0, -- updated before each read
  last     bigint, -- Null: no number yet. A strict gate then has no first number.
  primary key (consumer, resource)
) with (fillfactor = 50);

-- Deliveries that arrived before their predecessors took effect. Each is a job, not due before its
-- hold ends.
create table pawl.sequence_gate_held (
  consumer pawl.name not null,
  resource pawl.name not null,
  seq      bigint not null,
  job_id   bigint not null,
  held_at  timestamptz not null default clock_timestamp(),
  primary key (consumer, resource, seq, job_id)
);

-- Commands and the responses that repeated calls get. In the one-transaction form the row is
-- invisible to other transactions until its end. lease_expires_at stays null: the end is HOT.
create table pawl.command (
  scope            pawl.name not null,
  key              pawl.name not null,
  hash             pawl.hash not null,         -- never changes
  fence            bigint not null default nextval('pawl.fence_seq'),
  attempts         pawl.ordinal not null default 1,
  claimed_by       pawl.name,                  -- for people
  lease_expires_at timestamptz,
  created_at       timestamptz not null default clock_timestamp(),
  updated_at       timestamptz not null default clock_timestamp(),
  expires_at       timestamptz not null, -- end of its retention; set again when the command ends
  status           pawl.command_status not null default 'processing',
  response_status  pawl.http_status,
  response_headers jsonb,
  response_body    pawl.octets,
  result           pawl.octets,
  result_ref_type  pawl.name,
  result_ref_id    pawl.name,
  failure_code     pawl.name,
  failure_message  pawl.message,
  primary key (scope, key),
  check (expires_at > created_at),
  check (lease_expires_at is null or status in ('processing', 'unknown'))
) with (fillfactor = 80);

-- Statements that look up a command must not test lease_expires_at: it could use this index.
create index command_stale on pawl.command (lease_expires_at) where lease_expires_at is not null;
create index command_age on pawl.command (created_at);

-- Counts of replayed responses, reported by clients: a replay writes nothing.
create table pawl.replay (
  scope      pawl.name primary key,
  replays    bigint not null check (replays >= 0),
  updated_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- Calls to external systems, each a step of a job, a delivery or a command.
create table pawl.step (
  scope           pawl.name not null,
  key             pawl.name not null,
  step            pawl.name not null,
  hash            pawl.hash not null,         -- of the request; never changes
  fence           bigint not null default 0,  -- of the newest call or probe
  -- Calls up to this fence are known not to have been executed.
  cleared         bigint not null default 0,
  job_id          bigint,                     -- the job that waits for a verdict
  memory_ends_at  timestamptz, -- recovery keyed: the provider surely knows the key until then
  created_at      timestamptz not null default clock_timestamp(),
  updated_at      timestamptz not null default clock_timestamp(),
  expires_at      timestamptz not null,       -- end of its retention; set again when the step ends
  status          pawl.step_status not null default 'planned',
  recovery        pawl.step_recovery not null,
  provider        pawl.name,                  -- for the people who settle an unknown step
  provider_key    pawl.name not null,         -- the idempotency key that each call carries
  reference       pawl.name,                  -- the provider's id of the object it created
  result          pawl.octets,
  failure_code    pawl.name,
  failure_message pawl.message,
  primary key (scope, key, step),
  check (expires_at > created_at)
) with (fillfactor = 80);

create index step_unknown on pawl.step (job_id) where status = 'unknown';
create index step_age on pawl.step (created_at);

-- Evidence of each call. It is accepted from any attempt, however late.
create table pawl.step_call (
  fence      bigint primary key,
  scope      pawl.name not null,
  key        pawl.name not null,
  step       pawl.name not null,
  probe      boolean not null,              -- it only asked whether an earlier call was executed
  started_at timestamptz not null default clock_timestamp(),
  not_after  timestamptz not null,          -- nothing is sent later than this
  ended_at   timestamptz,
  outcome    pawl.call_outcome,             -- null: not reported; the process may have died
  reference  pawl.name,
  detail     jsonb not null default '{}',   -- error, code and facts of the exchange; never bodies
  check ((outcome is null) = (ended_at is null))
);

create index step_call_of on pawl.step_call (scope, key, step);

-- The highest fence that each resource has seen, for rows that no job row guards.
create table pawl.fence (
  resource pawl.name primary key,
  fence    bigint not null,
  seen_at  timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- Changes by operators, with their reasons. Written in the same transaction. Never deleted.
create table pawl.audit (
  id     bigint generated always as identity primary key,
  at     timestamptz not null default clock_timestamp(),
  actor  pawl.name not null,
  -- The function: 'job_retry'.
  verb   text collate "C" not null check (octet_length(verb) between 1 and 63),
  target pawl.name not null,         -- 'job 17'
  reason text collate "C" not null check (octet_length(reason) between 1 and 4000),
  before jsonb not null,             -- the row, with length and SHA-256 in place of its payload
  after  jsonb                       -- null: deleted
);

create index audit_target on pawl.audit (target, id);

-- Argument checks that the functions below share. They raise an error and never change a value.
--
-- Each check is one SQL expression, which the planner inlines. A function with its own search_path
-- costs as much as all checks of a statement, so the check calls one (_refuse_…) only to raise.
-- Each _refuse function declares cost 1: expensive constant calls are replanned at each execution.

create or replace function pawl_v1._refuse_scope(p_what text, p_name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception '% must have 1 to 255 octets, it has %', p_what, coalesce(octet_length(p_name), 0)
    using errcode = 'P4000', hint = 'pass the same short name at every call';
end
$$;

create or replace function pawl_v1._check_scope(p_what text, p_name text)
returns void
language sql
immutable
return case when octet_length(p_name) between 1 and 255 then null else pawl_v1._refuse_scope(p_what, p_name) end;

create or replace function pawl_v1._refuse_key(p_what text, p_key text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception '% must have 1 to 255 octets, it has %', p_what, coalesce(octet_length(p_key), 0)
    using errcode = 'P4001',
          hint = case when octet_length(p_key) > 255 then 'hash a longer key, for instance encode(sha256(...), ''hex'')'
                      else 'pass the name that the sender gave the message or request' end;
end
$$;

create or replace function pawl_v1._check_key(p_what text, p_key text)
returns void
language sql
immutable
return case when octet_length(p_key) between 1 and 255 then null else pawl_v1._refuse_key(p_what, p_key) end;

create or replace function pawl_v1._refuse_hash(p_hash bytea)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception 'the fingerprint must have 32 octets, it has %', coalesce(octet_length(p_hash), 0)
    using errcode = 'P4003', hint = 'pass sha256(payload)';
end
$$;

create or replace function pawl_v1._check_hash(p_hash bytea)
returns void
language sql
immutable
return case when octet_length(p_hash) = 32 then null else pawl_v1._refuse_hash(p_hash) end;

create or replace function pawl_v1._refuse_args(p_payload bytea)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception 'payload must have at most 4194304 octets, it has %', coalesce(octet_length(p_payload)::text, 'none')
    using errcode = 'P4004',
          hint = case when p_payload is null then 'pass an empty payload if there is nothing to say'
                      else 'store a large payload elsewhere and enqueue its reference' end;
end
$$;

create or replace function pawl_v1._check_payload(p_payload bytea)
returns void
language sql
immutable
return case when octet_length(p_payload) <= 4194304 then null else pawl_v1._refuse_args(p_payload) end;

create or replace function pawl_v1._refuse_headers(p_headers jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception 'headers must be a JSON object, they are %', jsonb_typeof(p_headers)
    using errcode = 'P4004';
end
$$;

-- Null passes and means no headers.
create or replace function pawl_v1._check_headers(p_headers jsonb)
returns void
language sql
immutable
return case when jsonb_typeof(p_headers) not in ('object', 'null') then pawl_v1._refuse_headers(p_headers) end;

create or replace function pawl_v1._refuse_int(p_what text, p_value bigint, p_min bigint, p_max bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception '% must lie between % and %, it is %', p_what, p_min, p_max, p_value
    using errcode = 'P4004';
end
$$;

-- Null passes and means the default.
create or replace function pawl_v1._check_int(p_what text, p_value bigint, p_min bigint, p_max bigint)
returns void
language sql
immutable
return case when p_value not between p_min and p_max then pawl_v1._refuse_int(p_what, p_value, p_min, p_max) end;

-- _before returns the time p_older_than_ms milliseconds ago, at most ten years.
create or replace function pawl_v1._before(p_older_than_ms bigint)
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_older_than_ms is null then
    raise exception 'older_than_ms is required'
      using errcode = 'P4004';
  end if;
  perform pawl_v1._check_int('older_than_ms', p_older_than_ms, 0, 315360000000);
  return clock_timestamp() - p_older_than_ms * interval '1 millisecond';
end
$$;

-- _since returns option since, the time where a purge resumes. Default: the beginning.
create or replace function pawl_v1._since(p_options jsonb)
returns timestamptz
language sql
stable
return coalesce((p_options ->> 'since')::timestamptz, '-infinity');

create or replace function pawl_v1._refuse_batch(p_what text, p_count int, p_max int)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  if p_count > p_max then
    raise exception 'a batch has at most % elements, this one has %', p_max, p_count
      using errcode = 'P4004', hint = 'send several batches';
  end if;
  raise exception 'the arrays of a batch must be as long as %, which has %', p_what, p_count
    using errcode = 'P4004', hint = 'pass null for an array of defaults';
end
$$;

-- _check_batch checks that the arrays of one batch have equal length and at most p_max elements.
create or replace function pawl_v1._check_batch(p_what text, p_count int, p_max int, variadic p_lengths int[])
returns void
language sql
immutable
return case when p_count <= p_max and p_count = all (p_lengths) then null else pawl_v1._refuse_batch(p_what, p_count, p_max) end;

create or replace function pawl_v1._int_given(p_options jsonb, p_name text, p_min bigint, p_max bigint)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
declare
  v_value bigint;
begin
  if jsonb_typeof(p_options -> p_name) <> 'number' then
    if jsonb_typeof(p_options -> p_name) = 'null' then
      return null;
    end if;
    raise exception 'option % must be a number, it is %', p_name, p_options -> p_name
      using errcode = 'P4004';
  end if;
  v_value := trunc((p_options ->> p_name)::numeric);
  if v_value not between p_min and p_max then
    perform pawl_v1._refuse_int('option ' || p_name, v_value, p_min, p_max);
  end if;
  return v_value;
end
$$;

-- _int_option reads an integer option with bounds. Absent or null means the default. Most options
-- are absent in most calls, so that case makes no call.
create or replace function pawl_v1._int_option(
  p_options jsonb,
  p_name    text,
  p_default bigint,
  p_min     bigint,
  p_max     bigint
)
returns bigint
language sql
immutable
return case when p_options ? p_name then coalesce(pawl_v1._int_given(p_options, p_name, p_min, p_max), p_default) else p_default end;

-- _ms_option reads an option in milliseconds.
create or replace function pawl_v1._ms_option(p_options jsonb, p_name text, p_default bigint, p_min bigint, p_max bigint)
returns interval
language sql
immutable
return pawl_v1._int_option(p_options, p_name, p_default, p_min, p_max) * interval '1 millisecond';

create or replace function pawl_v1._text_array_given(p_options jsonb, p_name text)
returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
begin
  case jsonb_typeof(p_options -> p_name)
    when 'null' then
      return null;
    when 'array' then
      return array(select jsonb_array_elements_text(p_options -> p_name));
    else
      raise exception 'option % must be an array of texts, it is %', p_name, p_options -> p_name
        using errcode = 'P4004';
  end case;
end
$$;

-- _text_array_option reads an option that is an array of texts. Absent or null means null.
create or replace function pawl_v1._text_array_option(p_options jsonb, p_name text)
returns text[]
language sql
immutable
return case when p_options ? p_name then pawl_v1._text_array_given(p_options, p_name) end;

create or replace function pawl_v1._refuse_options(p_options jsonb, p_known text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  if p_options is null or jsonb_typeof(p_options) <> 'object' then
    raise exception 'options must be a JSON object'
      using errcode = 'P4004';
  end if;
  raise exception 'unknown option %', (select min(o.name) from jsonb_object_keys(p_options - p_known) as o (name))
    using errcode = 'P4004', hint = 'known here: ' || array_to_string(p_known, ', ');
end
$$;

-- _check_options refuses unknown options, so that a misspelt one is not silently ignored.
create or replace function pawl_v1._check_options(p_options jsonb, p_known text[])
returns void
language sql
immutable
return case
  when case jsonb_typeof(p_options) when 'object' then p_options - p_known = '{}' end then null
  else pawl_v1._refuse_options(p_options, p_known)
end;

-- _audit_target returns the target of a change as pawl.audit names it: a kind and names. Above 255
-- octets it is the kind and a hash of the names. The record holds the full names.
create or replace function pawl_v1._audit_target(p_kind text, variadic p_names text[])
returns text
language sql
stable
return case
         when octet_length(p_kind || ' ' || array_to_string(p_names, ' ')) <= 255 then p_kind || ' ' || array_to_string(p_names, ' ')
         else p_kind || ' ' || encode(sha256(convert_to(to_jsonb(p_names)::text, 'UTF8')), 'hex')
       end;

-- _is_ours reports whether this transaction wrote a row that it sees, in any of its savepoints. The
-- writer of a visible row can only be in progress if it is this transaction. p_xmin is the row's
-- xmin, 32 bits of a transaction id. age() would not do: its first call in a transaction fixes its
-- reference.
create or replace function pawl_v1._is_ours(p_xmin xid)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Null: this transaction has written nothing.
  v_top   bigint := pg_current_xact_id_if_assigned()::text::bigint;
  -- Savepoints have later ids than their transaction.
  v_ahead bigint := (p_xmin::text::bigint - v_top) & 4294967295;
begin
  -- The row is older than this transaction.
  if v_top is null or v_ahead >= 2147483648 then
    return false;
  end if;
  -- An id beyond the snapshot has two possible causes. It belongs to a savepoint of this
  -- transaction. Or the row was frozen long ago, and its 32 bits have wrapped to an id ahead of all
  -- ids in use: pg_xact_status then raises.
  if v_top + v_ahead < pg_snapshot_xmax(pg_current_snapshot())::text::bigint then
    return pg_xact_status((v_top + v_ahead)::text::xid8) = 'in progress';
  end if;
  begin
    return pg_xact_status((v_top + v_ahead)::text::xid8) = 'in progress';
  exception
    when invalid_parameter_value then
      return false;
  end;
end
$$;

-- An answer that was only read must wait for replication like the commit that it rests on.
--
-- A COMMIT that waits for a synchronous standby stops waiting when it is cancelled, when its
-- backend is terminated, and when the server restarts. Its rows are then visible here and may never
-- reach the standby. A transaction that reads such a row and writes nothing does not wait for
-- replication. Its answer would survive a failover that its row does not.

-- _unreplicated writes a WAL record in the transaction that returns the answer. Its COMMIT then
-- waits until everything before it is replicated. A transaction id alone is not enough: without
-- WAL, COMMIT does not wait. Callers test synchronous_standby_names first.
--
-- detail.unreplicated identifies the server by its start time. Only a COMMIT on the same server
-- confirms what was read on it. After a failover, the promoted server confirms nothing about the
-- old primary.
create or replace function pawl_v1._unreplicated()
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_is_in_recovery() then
    raise exception 'a standby cannot confirm that this answer is replicated'
      using errcode = '25006', hint = 'ask the primary';
  end if;
  perform pg_logical_emit_message(true, 'pawl', '');
  return jsonb_build_object('unreplicated', extract(epoch from pg_postmaster_start_time())::text);
end
$$;

-- SQLSTATE 55P03 does not tell which lock timed out. A row lock affects one message. A table lock
-- (CREATE INDEX, REINDEX, VACUUM FULL, ALTER TABLE) affects all.

-- _table_locked returns the first of p_tables that cannot be written to now, or null. It waits 50
-- ms a table.
create or replace function pawl_v1._table_locked(p_tables regclass[])
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
  v_table regclass;
begin
  foreach v_table in array p_tables loop
    begin
      execute format('lock table %s in row exclusive mode', v_table);
    exception
      when insufficient_privilege then
        null; -- the caller does not write to this table
      when lock_not_available then
        return v_table;
    end;
  end loop;
  return null;
end
$$;

-- Logical replication copies rows but not sequences. A fence issued twice lets an old attempt pass
-- as the newest, and lets a step whose outcome is unknown be called again.

-- _sequences_behind returns the sequences whose next number is already used in a table. If a table
-- has no index on the number, it reads p_rows rows of it, or all if p_rows is null. A sample is
-- enough, because after a copy nearly every row is ahead of the sequence.
create or replace function pawl_v1._sequences_behind(p_rows bigint default 1000)
returns table (sequence text, last_value bigint, held bigint)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select s.sequence, coalesce(pg_sequence_last_value(s.sequence::regclass), 0), s.held
    from (values
      ('pawl.worker_id_seq', (select max(w.id) from pawl.worker as w)),
      ('pawl.lane_id_seq', (select max(l.id) from pawl.lane as l)),
      ('pawl.job_id_seq', (select max(j.id) from pawl.job as j)),
      ('pawl.position_seq', (select max(j.position) from (select j.position from pawl.job as j where j.position is not null limit p_rows) as j)),
      ('pawl.fence_seq', greatest(
        (select max(c.fence) from (select c.fence from pawl.command as c limit p_rows) as c),
        (select max(greatest(e.fence, e.cleared)) from (select e.fence, e.cleared from pawl.step as e limit p_rows) as e),
        (select max(c.fence) from (select c.fence from pawl.step_call as c limit p_rows) as c),
        (select max(d.fence) from pawl.schedule as d)))) as s (sequence, held)
   where has_sequence_privilege(s.sequence, 'select, usage')
     and s.held > coalesce(pg_sequence_last_value(s.sequence::regclass), 0)
$$;

-- These functions guard work inside your own transaction that has no row of Pawl's.

-- try_lock locks a name until the transaction ends, without waiting. Use it to run a task once at a
-- time, such as closing a merchant's day or importing a file. It does not remember that the task
-- was done, so it does not replace a constraint or a key. Use your own rows for that.
--
-- Names are hashed to 64 bits. A collision can refuse a free name but never admits two holders.
-- ('a', 'bc') and ('ab', 'c') are two names. The same transaction may lock a name again.
--
-- Outcomes:
--   locked  The name is yours until the transaction ends.
--   busy    Another transaction holds it.
--
-- Errors:
--   P4000, P4001  The namespace or the key does not have 1 to 255 octets.
create or replace function pawl_v1.try_lock(p_namespace text, p_key text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_scope('namespace', p_namespace);
  perform pawl_v1._check_key('key', p_key);
  return query
  select case
           when pg_try_advisory_xact_lock(hashtextextended(octet_length(p_namespace) || ':' || p_namespace || p_key, 1885435756))
           then 'locked' else 'busy'
         end, '{}'::jsonb;
end
$$;

-- fence_accept accepts a write to a resource unless a newer attempt wrote to it. Call it first in
-- the transaction that writes. The resource's row stays locked until that transaction ends. The
-- fence is remembered if it commits.
--
-- Fences are comparable only if they come from one source. So name the source in the resource: 'job
-- 17 report', not 'report'.
--
-- Outcomes:
--   accepted  No higher fence was accepted before. The same fence is accepted again.
--
-- Errors:
--   P4020         A higher fence was accepted: drop this attempt.
--   55P03         Another transaction has written to the resource for more than 2 s.
--   P4000, P4004  The resource does not have 1 to 255 octets, or the fence is below 1.
create or replace function pawl_v1.fence_accept(p_resource text, p_fence bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_seen bigint;
begin
  perform pawl_v1._check_scope('resource', p_resource);
  if p_fence is null or p_fence < 1 then
    raise exception 'a fence is 1 or more, this one is %', coalesce(p_fence::text, 'null')
      using errcode = 'P4004', hint = 'pass the fence that the claim returned';
  end if;
  insert into pawl.fence as f (resource, fence)
  values (p_resource, p_fence)
  on conflict do nothing;
  if not found then
    update pawl.fence as f
       set fence = p_fence,
           seen_at = clock_timestamp()
     where f.resource = p_resource
       and f.fence <= p_fence;
    if not found then
      select f.fence
        into v_seen
        from pawl.fence as f
       where f.resource = p_resource;
      raise exception 'resource % has seen fence %, this attempt has %', p_resource, v_seen, p_fence
        using errcode = 'P4020', detail = 'superseded', hint = 'a newer attempt owns this resource; drop this one';
    end if;
  end if;
  return query
  select 'accepted', '{}'::jsonb;
end
$$;

-- fence_purge deletes the fences of resources without a write for p_older_than_ms, at most p_limit
-- (1 to 100,000). An attempt that is older than that and still runs is then accepted, so choose
-- days. The command 'pawl purge --table fence' calls it.
--
-- Outcomes:
--   purged  The column purged is the number of rows.
--
-- Errors:
--   P4004  An argument.
create or replace function pawl_v1.fence_purge(p_older_than_ms bigint, p_limit int default 1000)
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_before timestamptz := pawl_v1._before(p_older_than_ms);
  v_purged int;
begin
  perform pawl_v1._check_int('limit', p_limit, 1, 100000);
  with due as (
    select f.resource
      from pawl.fence as f
     where f.seen_at < v_before
     limit coalesce(p_limit, 1000)
       for update skip locked
  )
  delete from pawl.fence as f
   using due as d
   where f.resource = d.resource
     and f.seen_at < v_before;
  get diagnostics v_purged = row_count;
  return query
  select 'purged', v_purged, '{}'::jsonb;
end
$$;

-- The inbox: deliveries already seen, per consumer.

-- inbox_claim claims a delivery. Call it as the first statement of the transaction that will apply
-- it. Its row commits with your rows or not at all. p_key is the sender's name for the intent, the
-- same at every resend.
--
-- Outcomes:
--   processed          This transaction owns the delivery. Do the work, then commit.
--   duplicate_ignored  An earlier transaction committed it, or a job owns it (job_id). result_ref
--                      is the stored one. Do nothing; commit, then acknowledge.
--   behind             Only with option 'lane': this transaction owns the delivery, and an earlier
--                      job of the lane is open. Call inbox_store and commit.
--
-- Errors:
--   P4002  The key came before with another payload. DETAIL holds both hashes.
--   55P03  Another transaction is processing it. The error comes after 50 ms, instead of a wait.
--          Roll back and leave the message for later; never acknowledge it.
--   40001  The row appeared and disappeared three times. Restart the transaction.
--   P4000, P4001, P4003, P4004
--          An argument.
--
-- Options:
--   result_ref   (text) Stored with the row and returned to duplicates.
--   lane, queue  (text) The lane in which inbox_store would put the delivery. It is locked before
--                the row is inserted and until this transaction ends. So deliveries of one lane are
--                processed one at a time. 55P03 as above.
--   lane_policy  ('block', 'park' or 'skip', default 'block') The policy of a new lane: see
--                lane_policy.
create or replace function pawl_v1.inbox_claim(
  p_consumer   text,
  p_key text,
  p_hash       bytea,
  p_options    jsonb default '{}'
)
returns table (outcome text, result_ref text, job_id bigint, received_at timestamptz, processed_at timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
  v_seen pawl.inbox;
  v_lane bigint;
begin
  -- Four check calls cost a tenth of a claim (pgbench, 16 clients), so test first.
  if (octet_length(p_consumer) between 1 and 255 and octet_length(p_key) between 1 and 255
      and octet_length(p_hash) = 32 and p_options = '{}') is not true
  then
    perform pawl_v1._check_scope('consumer', p_consumer), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
            pawl_v1._check_options(p_options, '{result_ref,lane,queue,lane_policy}');
    -- The lane is locked first, so an earlier delivery of it has committed or been stored.
    if p_options ? 'lane' then
      v_lane := (pawl_v1._lanes_enter(array[p_options ->> 'queue'], array[p_options ->> 'lane'], p_options))[1];
    end if;
  end if;

  -- Insert or observe. The select's own snapshot sees the winner. The loop covers a concurrent
  -- delete.
  for v_try in 1..3 loop
    insert into pawl.inbox as i (consumer, key, hash, processed_at, result_ref)
    values (p_consumer, p_key, p_hash, clock_timestamp(), p_options ->> 'result_ref')
    on conflict do nothing
    returning i.*
    into v_seen;
    if found then
      return query
      select case when v_lane is not null and pawl_v1._lane_is_open(v_lane) then 'behind' else 'processed' end,
             v_seen.result_ref, v_seen.job_id, v_seen.received_at, v_seen.processed_at, '{}'::jsonb;
      return;
    end if;

    select i.*
      into v_seen
      from pawl.inbox as i
     where i.consumer = p_consumer
       and i.key = p_key;
    if found then
      if v_seen.hash <> p_hash then
        raise exception 'key % of consumer % came before with a different payload', p_key, p_consumer
          using errcode = 'P4002',
                detail = json_build_object('stored_hash', encode(v_seen.hash, 'hex'), 'given_hash', encode(p_hash, 'hex')),
                hint = 'a key names one payload for ever: fix the sender, or key by content';
      end if;
      return query
      select 'duplicate_ignored', v_seen.result_ref, v_seen.job_id, v_seen.received_at, v_seen.processed_at,
             case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unreplicated() end;
      return;
    end if;
  end loop;
  raise exception 'message % of consumer % keeps appearing and disappearing', p_key, p_consumer
    using errcode = '40001', hint = 'restart the transaction';
end
$$;

-- inbox_claim_many claims up to 1000 deliveries of one consumer in one statement. p_hashes[i]
-- belongs to p_keys[i], and n counts from 1. Keys are claimed in sorted order, so two batches
-- cannot deadlock. If inbox_claim would raise an error for a delivery, the result here is a row, so
-- the others are claimed.
--
-- A key that another transaction has in hand costs the batch 50 ms, and each further one 5 ms.
-- There are no options.
--
-- Outcomes:
--   processed          This transaction owns the delivery. Do the work, then commit.
--   duplicate_ignored  It was seen before, a job owns it (job_id), or the batch has it twice. Do
--                      nothing; commit, then acknowledge.
--   mismatch           The key came before with another payload. detail has stored_hash and
--                      given_hash. Keep it as a dead letter.
--   in_progress        Another transaction has it, or it was purged a moment ago. Leave it for
--                      later; never acknowledge it.
--
-- Errors:
--   P4000, P4001, P4003, P4004
--             An argument.
create or replace function pawl_v1.inbox_claim_many(
  p_consumer    text,
  p_keys text[],
  p_hashes      bytea[],
  p_options     jsonb default '{}'
)
returns table (n int, outcome text, result_ref text, job_id bigint, received_at timestamptz, processed_at timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
  v_count int := coalesce(cardinality(p_keys), 0);
  v_fresh text[] := '{}';
  v_unreplicated jsonb := '{}';
  v_row   record;
begin
  perform pawl_v1._check_options(p_options, '{}'),
          pawl_v1._check_batch('keys', v_count, 1000, coalesce(cardinality(p_hashes), 0)),
          pawl_v1._check_scope('consumer', p_consumer);
  perform pawl_v1._check_key('key', r.key), pawl_v1._check_hash(r.hash)
     from unnest(p_keys, p_hashes) as r (key, hash)
    where r.key is null or octet_length(r.key) not between 1 and 255
       or r.hash is null or octet_length(r.hash) <> 32;

  begin
    with put as (
      insert into pawl.inbox as i (consumer, key, hash, processed_at)
      select distinct on (r.key collate "C") p_consumer, r.key, r.hash, clock_timestamp()
        from unnest(p_keys, p_hashes) with ordinality as r (key, hash, n)
       order by r.key collate "C", r.n
      on conflict do nothing
      returning i.key
    )
    select coalesce(array_agg(p.key), '{}')
      into v_fresh
      from put as p;
  exception
    when lock_not_available then
      -- Another transaction has one of the keys. Claim each key alone to skip only that one.
      perform set_config('lock_timeout', '5ms', true);
      for v_row in
        select distinct on (r.key collate "C") r.key, r.hash
          from unnest(p_keys, p_hashes) with ordinality as r (key, hash, n)
         order by r.key collate "C", r.n
      loop
        begin
          insert into pawl.inbox as i (consumer, key, hash, processed_at)
          values (p_consumer, v_row.key, v_row.hash, clock_timestamp())
          on conflict do nothing;
          if found then
            v_fresh := v_fresh || v_row.key;
          end if;
        exception
          when lock_not_available then null;
        end;
      end loop;
  end;

  if cardinality(v_fresh) < v_count and current_setting('synchronous_standby_names') <> '' then
    v_unreplicated := pawl_v1._unreplicated();
  end if;
  -- A separate statement sees the winners. A key without a visible row belongs to an open
  -- transaction or was purged a moment ago.
  return query
  select r.n::int,
         case
           when s.key is null then 'in_progress'
           when s.hash <> r.hash then 'mismatch'
           when f.key is not null and r.turn = 1 then 'processed'
           else 'duplicate_ignored'
         end,
         s.result_ref, s.job_id, s.received_at, s.processed_at,
         case
           when s.hash <> r.hash then jsonb_build_object('stored_hash', encode(s.hash, 'hex'), 'given_hash', encode(r.hash, 'hex'))
           when f.key is not null and r.turn = 1 then '{}'
           else v_unreplicated
         end
    from (select u.key, u.hash, u.n, row_number() over (partition by u.key order by u.n) as turn
            from unnest(p_keys, p_hashes) with ordinality as u (key, hash, n)) as r
    left join unnest(v_fresh) as f (key) on f.key = r.key
    left join lateral (
           select i.*
             from pawl.inbox as i
            where i.consumer = p_consumer
              and i.key = r.key
            limit 1) as s on true
   order by r.n;
end
$$;

-- inbox_store stores a delivery that this transaction claimed as a job, which retries it from the
-- database. p_payload becomes the job's payload. Set a savepoint after inbox_claim. If your work
-- fails, roll back to it, call inbox_store and commit. No other transaction can claim the delivery
-- in between. After COMMIT, acknowledge it.
--
-- Outcomes:
--   stored       The job is pending.
--   dead_letter  The option 'dead' was true.
--
-- Errors:
--   P4020         The row was not inserted in this transaction: another one committed it, and it
--                 took effect. Keep the order: claim, savepoint, work.
--   P4000, P4004  An argument. p_payload has at most 4 MiB.
--   40001         The lane appeared and disappeared three times. Restart the transaction.
--
-- Options:
--   attempts      (0 to 1000, default 1) Tries already made. The one that failed counts.
--   crashes       (0 to 1000, default 0) With 1 the job is a suspect: it is claimed alone.
--   max_attempts  (1 to 1000, default 25) After so many attempts the job is a dead letter.
--   retry_in_ms   (0 to a year, default 0) The earliest next attempt, from now.
--   headers       (object, default none) Stored beside the payload.
--   error         (object, default none) {"error": text, "code": text}, the first entry of the
--                 error history.
--   dead          (boolean) Store it as a dead letter.
--   lane          (1 to 255 octets, default none) The job stands in this lane of p_queue, behind
--                 the open jobs of it.
--   lane_policy   ('block', 'park' or 'skip', default 'block') The policy of a new lane: see
--                 lane_policy.
create or replace function pawl_v1.inbox_store(
  p_consumer   text,
  p_key text,
  p_queue      text,
  p_kind       text,
  p_payload       bytea,
  p_options    jsonb default '{}'
)
returns table (outcome text, job_id bigint, available_at timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id   bigint := nextval('pawl.job_id_seq');
  v_lane bigint;
  v_job  pawl.job;
begin
  perform pawl_v1._check_options(p_options, '{attempts,crashes,max_attempts,retry_in_ms,headers,error,dead,lane,lane_policy}');
  if p_options ? 'lane' then
    v_lane := (pawl_v1._lanes_enter(array[p_queue], array[p_options ->> 'lane'], p_options))[1];
  end if;
  perform pawl_v1._job_insert(v_id, p_queue, p_kind, p_payload, '{"attempts": 1}'::jsonb || p_options, v_lane);

  -- Only a row of this transaction: a committed one took effect and must not run again.
  update pawl.inbox as i
     set job_id = v_id,
         processed_at = null
   where i.consumer = p_consumer
     and i.key = p_key
     and i.job_id is null
     and pawl_v1._is_ours(i.xmin);
  if not found then
    raise exception 'message % of consumer % was not claimed in this transaction', p_key, p_consumer
      using errcode = 'P4020', hint = 'call inbox_claim first; store only when it answered processed';
  end if;

  update pawl.job as j
     set status = case when (p_options ->> 'dead')::boolean then 'dead_letter' else j.status end,
         last_errors = pawl_v1._push_error(j.last_errors, p_options -> 'error', j.attempts)
   where j.id = v_id
  returning j.*
       into v_job;
  if v_lane is not null and v_job.status = 'dead_letter' then
    perform pawl_v1._lanes_leave(array[v_id]);
  end if;
  return query
  select case v_job.status when 'dead_letter' then 'dead_letter' else 'stored' end, v_id, v_job.available_at, '{}'::jsonb;
end
$$;

-- inbox_settle marks a stored delivery processed. Call it in the transaction that holds its job and
-- applies its effect. The example is under job_finish.
--
-- Outcomes:
--   processed  The delivery has taken effect once this transaction commits.
--
-- Errors:
--   P4020  The job no longer owns the delivery, for example because an operator forgot it. The
--          transaction must not commit.
create or replace function pawl_v1.inbox_settle(p_consumer text, p_key text, p_job_id bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  update pawl.inbox as i
     set processed_at = clock_timestamp()
   where i.consumer = p_consumer
     and i.key = p_key
     and i.job_id = p_job_id
     and i.processed_at is null;
  if not found then
    raise exception 'job % does not own message % of consumer %', p_job_id, p_key, p_consumer
      using errcode = 'P4020', hint = 'the delivery was forgotten or settled elsewhere; drop this attempt';
  end if;
  return query
  select 'processed', '{}'::jsonb;
end
$$;

-- inbox_reserve reserves a key for a job that will work on it without an open transaction. Call it
-- in a transaction that has checked the attempt with job_hold, and commit before the work begins. A
-- consumer does so for the 'SemanticKey' of a delivery before it calls a 'Handle'.
--
-- The reservation says that the job works on the key, not that the effect happened. In the
-- transaction that writes the effect, call inbox_claim for the effect's key, and inbox_unreserve.
--
-- The reservation ends with the attempt. Another job takes it over unless its owner is processing
-- or waits for a verdict on a step.
--
-- Outcomes:
--   reserved     The job has the key.
--   in_progress  Another job has it: job_id, and detail.status. Try again later.
--
-- Errors:
--   55P03  Another transaction has had the row for more than 50 ms.
--   P4000, P4001, P4003, P4004
--          An argument.
create or replace function pawl_v1.inbox_reserve(p_consumer text, p_key text, p_hash bytea, p_job_id bigint)
returns table (outcome text, job_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
  v_owner  bigint;
  v_status text;
begin
  perform pawl_v1._check_scope('consumer', p_consumer), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash);
  if p_job_id is null then
    raise exception 'job_id is required'
      using errcode = 'P4004', hint = 'pass the id of the job that will do the work';
  end if;
  -- Update it even if the job owns it, so that a takeover with an older snapshot gets 40001.
  insert into pawl.inbox as i (consumer, key, hash, job_id)
  values (p_consumer, p_key, p_hash, p_job_id)
      on conflict (consumer, key) do update
     set job_id = i.job_id
  returning i.job_id
       into v_owner;
  if v_owner is distinct from p_job_id then
    select j.status
      into v_status
      from pawl.job as j
     where j.id = v_owner;
    if v_status in ('processing', 'unknown') then
      return query
      select 'in_progress', v_owner, jsonb_build_object('status', v_status);
      return;
    end if;
    update pawl.inbox as i
       set job_id = p_job_id
     where i.consumer = p_consumer
       and i.key = p_key;
  end if;
  return query
  select 'reserved', p_job_id, '{}'::jsonb;
end
$$;

-- inbox_unreserve deletes a reservation of inbox_reserve. Call it in the transaction that ends the
-- work.
--
-- Outcomes:
--   unreserved  The reservation is gone.
--   absent      The job had no reservation.
--
-- Errors:
--   55P03  Another transaction has had the row for more than 2 s.
create or replace function pawl_v1.inbox_unreserve(p_consumer text, p_key text, p_job_id bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  delete from pawl.inbox as i
   where i.consumer = p_consumer
     and i.key = p_key
     and i.job_id = p_job_id
     and i.processed_at is null;
  return query
  select case when found then 'unreserved' else 'absent' end, '{}'::jsonb;
end
$$;

-- The inbox over time: promises to remember, purges, and forgetting by hand.

-- consumer_report records how long a consumer remembers its deliveries: p_window_ms, 1 ms to ten
-- years, or null for ever. Call it at the start and then once a minute. While the report holds, no
-- purge deletes deliveries that are younger than window_ms. Go consumers report by themselves.
--
-- If several programs report, the longest window holds. A shorter one replaces it after the longer
-- was not reported for ten minutes. detail.forgotten_until is that of inbox_memory. It is absent if
-- no delivery was ever purged.
--
-- Outcomes:
--   reported   Your window holds.
--   outlasted  Another program has reported a longer window: window_ms, null for ever.
--
-- Errors:
--   P4000, P4004  An argument.
--   55P03         Another transaction has had the row for more than 2 s.
--
-- Options:
--   horizon_ms  (1 ms to 10 years, default unknown) The longest time from sending to delivery, for
--               'pawl doctor'.
create or replace function pawl_v1.consumer_report(p_consumer text, p_window_ms bigint, p_options jsonb default '{}')
returns table (outcome text, window_ms bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_window bigint;
  v_detail jsonb;
begin
  perform pawl_v1._check_scope('consumer', p_consumer);
  perform pawl_v1._check_int('window_ms', p_window_ms, 1, 315360000000);
  perform pawl_v1._check_options(p_options, '{horizon_ms}');
  insert into pawl.consumer as c (name, window_ms, horizon_ms)
  values (p_consumer, p_window_ms, pawl_v1._int_option(p_options, 'horizon_ms', null, 1, 315360000000))
      on conflict (name) do update
     set window_ms = excluded.window_ms,
         horizon_ms = excluded.horizon_ms,
         seen_at = clock_timestamp()
   where coalesce(excluded.window_ms, 9223372036854775807) >= coalesce(c.window_ms, 9223372036854775807)
      or c.seen_at < clock_timestamp() - interval '10 minutes';
  if found then
    v_detail := jsonb_strip_nulls(jsonb_build_object('forgotten_until', pawl_v1._memory_enter(p_consumer)));
    return query
    select 'reported', p_window_ms, v_detail;
    return;
  end if;
  select c.window_ms
    into v_window
    from pawl.consumer as c
   where c.name = p_consumer;
  v_detail := jsonb_strip_nulls(jsonb_build_object('forgotten_until', pawl_v1._memory_enter(p_consumer)));
  return query
  select 'outlasted', v_window, v_detail;
end
$$;

-- _memory_enter locks the memory of a consumer until the transaction ends, and returns
-- forgotten_until. A report calls it after writing its promise, and a purge before reading the
-- promise. So either the purge sees the promise, or the report sees the purge. It updates the row,
-- because an older snapshot does not notice a lock alone (docs/decisions/0012-lanes.md).
create or replace function pawl_v1._memory_enter(p_consumer text)
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_until timestamptz;
begin
  insert into pawl.forgotten as f (consumer)
  values (p_consumer)
      on conflict (consumer) do update
     set ver = f.ver + 1
  returning f.until
       into v_until;
  return v_until;
end
$$;

-- inbox_memory returns the time up to which a consumer has forgotten deliveries. Before you handle
-- a delivery that may be old, call it in the transaction of inbox_claim, after the outcome
-- 'processed'. If the message was sent at forgotten_until or earlier, it may have taken effect
-- before and been purged. If it was sent later, it has not. Allow for the clock of the sender,
-- which may be ahead of the database's. Go consumers do this by themselves.
--
-- A purge deletes rows and records its progress in one transaction. So a transaction that finds no
-- row also finds how far the purge went, unless its snapshot is older than the purge.
--
-- Outcomes:
--   whole      No delivery of this consumer was ever purged: none is too old. forgotten_until is
--              null.
--   forgotten  Deliveries that first came at forgotten_until or earlier may be forgotten. Later
--              ones are not.
--
-- Errors:
--   40001  A purge ended after the snapshot of your transaction was taken. This can happen above
--          READ COMMITTED only. Restart the transaction.
--   55P03  A purge is running. Roll back and leave the message for later.
--   P4000  The consumer's name.
create or replace function pawl_v1.inbox_memory(p_consumer text)
returns table (outcome text, forgotten_until timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
  v_until timestamptz;
begin
  perform pawl_v1._check_scope('consumer', p_consumer);
  if current_setting('transaction_isolation') <> 'read committed' then
    begin
      insert into pawl.forgotten (consumer)
      values (p_consumer)
          on conflict do nothing;
      if found then
        raise exception 'nothing was ever forgotten';
      end if;
    exception
      when raise_exception then null; -- the insert is rolled back
    end;
  end if;
  select f.until
    into v_until
    from pawl.forgotten as f
   where f.consumer = p_consumer;
  return query
  select case when v_until is null then 'whole' else 'forgotten' end, v_until, '{}'::jsonb;
end
$$;

-- _check_promise refuses to delete deliveries that a consumer promised to remember. A consumer that
-- has not reported for its whole window (28 days if for ever) has retired. A consumer that never
-- reported needs 14 days, the longest that SQS keeps a message, unless p_unreported is set.
create or replace function pawl_v1._check_promise(p_consumer text, p_older_than_ms bigint, p_unreported boolean)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_window bigint;
begin
  select coalesce(c.window_ms, 315360000000)
    into v_window
    from pawl.consumer as c
   where c.name = p_consumer
     and c.seen_at > clock_timestamp() - coalesce(c.window_ms, 28 * 86400000::bigint) * interval '1 millisecond';
  if p_older_than_ms < v_window then
    raise exception 'consumer % remembers its deliveries for % hours, not %', p_consumer, round(v_window / 3600000.0, 1), round(p_older_than_ms / 3600000.0, 1)
      using errcode = 'P4004', hint = 'what is forgotten earlier runs again when it comes again: pass at least that, or configure a shorter Retention and wait ten minutes';
  end if;
  if not p_unreported
     and p_older_than_ms < 14 * 86400000::bigint
     and not exists (select from pawl.consumer as c where c.name = p_consumer) then
    raise exception 'consumer % never reported for how long it must remember, and % hours are less than 14 days', p_consumer, round(p_older_than_ms / 3600000.0, 1)
      using errcode = 'P4004', hint = 'what is forgotten earlier runs again when it comes again: pass 1209600000 (336h), call consumer_report, or set the option unreported (pawl purge --unreported) if no message comes again after that time';
  end if;
end
$$;

-- _purge_before checks the arguments of a purge. Deliveries from the returned time on stay.
create or replace function pawl_v1._purge_before(p_consumer text, p_older_than_ms bigint, p_limit int)
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_scope('consumer', p_consumer);
  if p_limit is null then
    raise exception 'limit is required'
      using errcode = 'P4004';
  end if;
  perform pawl_v1._check_int('limit', p_limit, 1, 10000);
  return pawl_v1._before(p_older_than_ms);
end
$$;

-- inbox_purge deletes deliveries of a consumer that first came longer ago than p_older_than_ms, at
-- most p_limit (1 to 10,000). Call it again until the number is below the limit, each time in its
-- own transaction. Deliveries that a job still owns stay, also if the job is a dead letter. It
-- skips locked rows, and waits up to 2 s for another purge or report of the consumer. inbox_memory
-- returns how far it went. Go consumers purge by themselves.
--
-- A claim of a key that is being deleted waits for the end of the call, and gets 55P03 after 50 ms.
-- So keep to the default limit.
--
-- If a delivery comes after its row is gone, it runs as new. So the call refuses a shorter age than
-- the one given to consumer_report. Without a report it refuses less than 14 days, the longest that
-- SQS keeps a message. If a consumer has not reported for as long as it remembers (28 days, if for
-- ever), its report does not count.
--
-- Outcomes:
--   purged  The column purged is the number of rows. detail.next as of job_key_purge.
--
-- Errors:
--   P4004  An argument, or the age is shorter than the consumer remembers.
--   P4000  The consumer's name.
--   55P03  Another purge or report of the consumer has lasted for 2 s.
--
-- Options:
--   since       (timestamp) As of job_key_purge.
--   unreported  (boolean) Allow less than 14 days without a report.
create or replace function pawl_v1.inbox_purge(p_consumer text, p_older_than_ms bigint, p_limit int default 1000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- walk the age index in order: docs/decisions/0036-purging.md
set enable_sort = off
set enable_seqscan = off
set lock_timeout = '2s'
as $$
declare
  v_before timestamptz;
  v_due    tid[];
  v_next   timestamptz;
  v_purged int;
begin
  perform pawl_v1._check_options(p_options, '{since,unreported}');
  v_before := pawl_v1._purge_before(p_consumer, p_older_than_ms, p_limit);
  perform pawl_v1._memory_enter(p_consumer);
  perform pawl_v1._check_promise(p_consumer, p_older_than_ms, coalesce((p_options ->> 'unreported')::boolean, false));
  select array_agg(d.ctid), max(d.received_at) -- ctids: see job_key_purge
    into v_due, v_next
    from (
      select i.ctid, i.received_at
        from pawl.inbox as i
       where i.received_at < v_before
         and i.received_at >= pawl_v1._since(p_options)
         and i.consumer = p_consumer
         and not exists (select from pawl.job as j where j.id = i.job_id)
       order by i.received_at
       limit p_limit
         for update skip locked
    ) as d;
  delete from pawl.inbox as i
   where i.ctid = any (v_due)
     and i.received_at < v_before
     and not exists (select from pawl.job as j where j.id = i.job_id);
  get diagnostics v_purged = row_count;
  if v_purged > 0 then
    update pawl.forgotten as f
       set until = greatest(f.until, v_next)
     where f.consumer = p_consumer;
  end if;
  return query
  select 'purged', v_purged, jsonb_strip_nulls(jsonb_build_object('next', v_next));
end
$$;

-- inbox_forget deletes one delivery, by an operator. If the same message comes again, it runs as
-- new, and its effect may be there twice. No other function runs a delivery past the inbox. It
-- leaves a record in pawl.audit, and makes all marks of the consumer in a filter
-- (docs/guides/filter.md) void.
--
-- The copy in pawl.delivery stays, for inbox_replay. If the delivery has such a copy and took
-- effect under a second name, that name is forgotten too. A delivery with a number at a gate is
-- stale there when it comes again, unless the gate is reset: see sequence_gate_reset.
--
-- Outcomes:
--   forgotten  Its row is gone.
--   moved      It is not as option processed_at says. detail.processed_at is its time now.
--   refused    A job in any state owns the delivery: detail.job, detail.status, detail.hint. Retry
--              the job, or discard it first.
--   absent     No delivery is remembered under this key.
--
-- Errors:
--   55P03                An open transaction has had the row for more than 2 s. Nothing changed.
--   P4000, P4001, P4004  An argument.
--
-- Options:
--   processed_at  (text or null) The time of its effect as you saw it; null: none. If that has
--                 changed since, nothing is deleted.
create or replace function pawl_v1.inbox_forget(
  p_consumer   text,
  p_key text,
  p_actor      text,
  p_reason     text,
  p_options    jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_seen   pawl.inbox;
  v_status text;
begin
  perform pawl_v1._check_options(p_options, '{processed_at}');
  perform pawl_v1._check_scope('consumer', p_consumer);
  perform pawl_v1._check_key('key', p_key);
  perform pawl_v1._check_by(p_actor, p_reason);
  select i.*
    into v_seen
    from pawl.inbox as i
   where i.consumer = p_consumer
     and i.key = p_key
     for update;
  if v_seen.key is null then
    return query
    select 'absent', '{}'::jsonb;
    return;
  end if;
  if p_options ? 'processed_at' and v_seen.processed_at is distinct from (p_options ->> 'processed_at')::timestamptz then
    return query
    select 'moved', jsonb_build_object('processed_at', v_seen.processed_at);
    return;
  end if;
  -- The owner changes only with this row: finishing the owner settles it first.
  select j.status
    into v_status
    from pawl.job as j
   where j.id = v_seen.job_id;
  if found then
    return query
    select 'refused', jsonb_build_object('job', v_seen.job_id, 'status', v_status, 'hint',
             case v_status
               when 'processing' then 'it is being worked on: wait for its end, or cancel the job and discard it'
               else 'retry the job, which is this delivery; or discard it first'
             end);
    return;
  end if;
  delete from pawl.inbox as i
   where i.consumer = p_consumer -- locked since its owner was read
     and i.key = p_key;
  -- Its second name, if it took effect under that. Else a redelivery would be a duplicate.
  delete from pawl.inbox as i
   using pawl.delivery as d
   where d.consumer = p_consumer
     and d.key = p_key
     and i.consumer = p_consumer
     and i.key = d.stored_as ->> 'semantic'
     and i.result_ref = p_key;
  insert into pawl.forgotten as f (consumer, by_hand)
  values (p_consumer, 1)
      on conflict (consumer) do update
     set by_hand = f.by_hand + 1;
  insert into pawl.audit (actor, verb, target, reason, before)
  values (p_actor, 'inbox_forget', pawl_v1._audit_target('inbox', p_consumer, p_key), p_reason, to_jsonb(v_seen));
  return query
  select 'forgotten', '{}'::jsonb;
end
$$;

-- A sequence gate has, per consumer and resource, the last number that took effect.
--
--              latest                     strict
--   n > last   passed, last = n           n = last + 1   passed, last = n; the next held goes
--   n <= last  stale: drop it             n <= last      stale: drop it
--                                         n > last + 1   early: sequence_gate_hold
--
-- An early delivery is held until the gap closes or an operator decides. A transaction that passes
-- or holds updates the gate's row first and keeps it locked. So either the one that passes sees the
-- held delivery, or the one that would hold sees that it may pass. Gates are never purged by age,
-- because a forgotten gate would let an old number pass.

-- _sequence_gate_enter creates or updates the row of a gate, which locks it.
create or replace function pawl_v1._sequence_gate_enter(p_consumer text, p_resource text, p_last bigint default null)
returns pawl.sequence_gate
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_gate pawl.sequence_gate;
begin
  for v_try in 1..3 loop
    update pawl.sequence_gate as g
       set ver = g.ver + 1,
           last = coalesce(g.last, p_last)
     where g.consumer = p_consumer
       and g.resource = p_resource
    returning g.*
         into v_gate;
    if found then
      return v_gate;
    end if;
    insert into pawl.sequence_gate as g (consumer, resource, last)
    values (p_consumer, p_resource, p_last)
    on conflict do nothing;
  end loop;
  raise exception 'gate % of consumer % keeps appearing and disappearing', p_resource, p_consumer
    using errcode = '40001', hint = 'restart the transaction';
end
$$;

-- _sequence_gate_promote makes held deliveries up to p_seq due. The caller has updated the gate's
-- row. It skips a locked job: its attempt waits for the gate and then passes.
create or replace function pawl_v1._sequence_gate_promote(p_consumer text, p_resource text, p_seq bigint)
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_free     bigint[];
  v_promoted int;
  v_queues   text[];
begin
  v_free := array(
    select j.id
      from pawl.job as j
     where j.id in (select h.job_id
                      from pawl.sequence_gate_held as h
                     where h.consumer = p_consumer
                       and h.resource = p_resource
                       and h.seq <= p_seq)
     order by j.id
       for update skip locked);
  with promoted as (
    update pawl.job as j
       set available_at = clock_timestamp()
     where j.id = any (v_free)
       and j.status = 'pending'
    returning j.queue
  )
  select count(*), array_agg(p.queue)
    into v_promoted, v_queues
    from promoted as p;
  if v_promoted > 0 then
    perform pawl_v1._wake(v_queues);
  end if;
  -- Entries whose job was discarded by an operator are deleted too.
  delete from pawl.sequence_gate_held as h
   where h.consumer = p_consumer
     and h.resource = p_resource
     and h.seq <= p_seq
     and (h.job_id = any (v_free) or not exists (select from pawl.job as j where j.id = h.job_id));
  return v_promoted;
end
$$;

-- sequence_gate_pass decides whether a delivery with number p_seq may take effect now. Call it as
-- the handler's first statement, after the savepoint, so that a failure takes the number back. The
-- gate stays locked until the transaction ends. The column last is the number that took effect
-- before this one, or null. detail.next_held is the lowest held number.
--
-- Outcomes:
--   passed  Mode 'latest': newer than the number that took effect last. Mode 'strict': the next
--           number.
--   stale   Not newer than the last number: drop it.
--   early   Mode 'strict': numbers before it are missing. Call inbox_store, then
--           sequence_gate_hold.
--   full    Mode 'strict': it is early, and the gate holds hold_limit deliveries already. Make it a
--           dead letter.
--
-- Errors:
--   55P03         Another transaction has had the gate for more than 2 s.
--   40001         The gate appeared and disappeared three times. Restart the transaction.
--   P4000, P4004  An argument.
--
-- Options:
--   mode        ('latest' or 'strict', required) Which numbers pass.
--   first       (number, default none) The first number of a strict gate. Without it all numbers
--               are early until sequence_gate_reset sets the beginning.
--   hold_limit  (1 to 1,000,000, default 1000) How many deliveries a strict gate holds.
create or replace function pawl_v1.sequence_gate_pass(p_consumer text, p_resource text, p_seq bigint, p_options jsonb)
returns table (outcome text, last bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_mode  text := p_options ->> 'mode';
  v_gate  pawl.sequence_gate;
  v_count bigint;
  v_next  bigint;
begin
  perform pawl_v1._check_options(p_options, '{mode,first,hold_limit}'), pawl_v1._check_scope('consumer', p_consumer),
          pawl_v1._check_scope('resource', p_resource);
  if p_seq is null or v_mode is null or v_mode not in ('latest', 'strict') then
    raise exception 'a gate needs a number and a mode, latest or strict'
      using errcode = 'P4004';
  end if;
  v_gate := pawl_v1._sequence_gate_enter(p_consumer, p_resource, case when v_mode = 'strict' then (p_options ->> 'first')::bigint - 1 end);

  if p_seq <= v_gate.last then
    return query
    select 'stale', v_gate.last, '{}'::jsonb;
    return;
  end if;
  if v_mode = 'latest' or p_seq = v_gate.last + 1 then
    update pawl.sequence_gate as g
       set last = p_seq
     where g.consumer = p_consumer
       and g.resource = p_resource;
    if v_mode = 'strict' then
      perform pawl_v1._sequence_gate_promote(p_consumer, p_resource, p_seq + 1);
    end if;
    return query
    select 'passed', v_gate.last, '{}'::jsonb;
    return;
  end if;
  select count(*), min(h.seq)
    into v_count, v_next
    from pawl.sequence_gate_held as h
   where h.consumer = p_consumer
     and h.resource = p_resource;
  return query
  select case when v_count < pawl_v1._int_option(p_options, 'hold_limit', 1000, 1, 1000000) then 'early' else 'full' end,
         v_gate.last, jsonb_strip_nulls(jsonb_build_object('next_held', v_next));
end
$$;

-- sequence_gate_hold records that job p_job_id holds a delivery, in the transaction in which
-- sequence_gate_pass returned 'early'. The transaction that passes the number before it makes the
-- job due.
--
-- Outcomes:
--   held  Recorded.
--
-- Errors:
--   55P03  Another transaction has had the gate for more than 2 s.
create or replace function pawl_v1.sequence_gate_hold(p_consumer text, p_resource text, p_seq bigint, p_job_id bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  perform pawl_v1._sequence_gate_enter(p_consumer, p_resource);
  insert into pawl.sequence_gate_held as h (consumer, resource, seq, job_id)
  values (p_consumer, p_resource, p_seq, p_job_id);
  return query
  select 'held', '{}'::jsonb;
end
$$;

-- sequence_gate_hold_again holds a delivery that a running job found early. It creates a copy of
-- the job, which owns the delivery from then on. Call it in the transaction that finishes the
-- running job, which keeps the gate locked. If you released the job instead, a transaction that
-- passes in between could miss it.
--
-- The attempt is not charged. The copy is in no lane, where it would block the deliveries that it
-- waits for. The column job_id is the copy.
--
-- Outcomes:
--   held  The copy holds the delivery.
--
-- Errors:
--   P4020  The job does not own the delivery.
--   55P03  Another transaction has had the gate for more than 2 s.
--   P4004  An argument.
--
-- Options:
--   retry_in_ms  (0 to a year, default 0) When the copy is due if it is not promoted before.
create or replace function pawl_v1.sequence_gate_hold_again(
  p_consumer   text,
  p_resource   text,
  p_seq        bigint,
  p_key text,
  p_job_id     bigint,
  p_options    jsonb default '{}'
)
returns table (outcome text, job_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_id bigint := nextval('pawl.job_id_seq');
begin
  perform pawl_v1._check_options(p_options, '{retry_in_ms}');
  perform pawl_v1._sequence_gate_enter(p_consumer, p_resource);
  update pawl.inbox as i
     set job_id = v_id,
         processed_at = null
   where i.consumer = p_consumer
     and i.key = p_key
     and i.job_id = p_job_id;
  if not found then
    raise exception 'job % does not own message % of consumer %', p_job_id, p_key, p_consumer
      using errcode = 'P4020', hint = 'the delivery was forgotten or settled elsewhere; drop this attempt';
  end if;
  insert into pawl.job as j (id, queue, kind, payload, headers, priority, attempts, crashes, crashes_alone, max_attempts, created_at, last_errors, available_at)
  overriding system value
  select v_id, o.queue, o.kind, o.payload, o.headers, o.priority, greatest(o.attempts - 1, 0), o.crashes, o.crashes_alone, o.max_attempts, o.created_at,
         o.last_errors, clock_timestamp() + pawl_v1._int_option(p_options, 'retry_in_ms', 0, 0, 31536000000) * interval '1 millisecond'
    from pawl.job as o
   where o.id = p_job_id;
  delete from pawl.sequence_gate_held as h
   where h.consumer = p_consumer
     and h.resource = p_resource
     and h.seq = p_seq
     and h.job_id = p_job_id;
  insert into pawl.sequence_gate_held as h (consumer, resource, seq, job_id)
  values (p_consumer, p_resource, p_seq, v_id);
  return query
  select 'held', v_id, '{}'::jsonb;
end
$$;

create or replace function pawl_v1._sequence_gate_audit(p_verb text, p_before pawl.sequence_gate, p_last bigint, p_actor text, p_reason text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into pawl.audit as a (actor, verb, target, reason, before, after)
  values (p_actor, p_verb, pawl_v1._audit_target('gate', p_before.consumer, p_before.resource), p_reason,
          to_jsonb(p_before) - 'ver', (to_jsonb(p_before) - 'ver') || jsonb_build_object('last', p_last));
end
$$;

-- sequence_gate_reset sets the last number of a gate, by an operator: the next is p_last + 1. Held
-- deliveries up to there are due at once. Use it for a strict gate without a first number, for a
-- gap that will not close, or after a sender restarted its numbers. It leaves a record in
-- pawl.audit.
--
-- Outcomes:
--   reset  detail.before is the number before. detail.promoted is how many deliveries are now due.
--   moved  The gate is not where option 'from' says: detail.before. Nothing changed.
--
-- Errors:
--   55P03         Another transaction has had the gate for more than 2 s.
--   P4000, P4004  An argument.
--
-- Options:
--   from  (number or null) The last number that you saw; null: none. Pass it, because setting a
--         gate back would let numbers pass again.
create or replace function pawl_v1.sequence_gate_reset(
  p_consumer text,
  p_resource text,
  p_last     bigint,
  p_actor    text,
  p_reason   text,
  p_options  jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.sequence_gate;
begin
  perform pawl_v1._check_options(p_options, '{from}');
  perform pawl_v1._check_scope('consumer', p_consumer);
  perform pawl_v1._check_scope('resource', p_resource);
  perform pawl_v1._check_by(p_actor, p_reason);
  if p_last is null then
    raise exception 'last is required'
      using errcode = 'P4004', hint = 'pass the number that took effect last';
  end if;
  v_before := pawl_v1._sequence_gate_enter(p_consumer, p_resource);
  if p_options ? 'from' and v_before.last is distinct from pawl_v1._int_option(p_options, 'from', null, -9223372036854775808, 9223372036854775807) then
    return query
    select 'moved', jsonb_build_object('before', v_before.last);
    return;
  end if;
  update pawl.sequence_gate as g
     set last = p_last
   where g.consumer = p_consumer
     and g.resource = p_resource;
  perform pawl_v1._sequence_gate_audit('sequence_gate_reset', v_before, p_last, p_actor, p_reason);
  return query
  select 'reset', jsonb_build_object('before', v_before.last, 'promoted', pawl_v1._sequence_gate_promote(p_consumer, p_resource, p_last + 1));
end
$$;

-- sequence_gate_release gives up the missing numbers before the lowest held one, by an operator.
-- The held one is then due. A number that was given up and arrives later is stale. It leaves a
-- record in pawl.audit.
--
-- Outcomes:
--   released  detail.before and detail.last are the numbers before and after.
--   idle      No delivery is held.
--   moved     The lowest held number is not the one of option next_held: detail.next_held. Nothing
--             changed.
--
-- Errors:
--   55P03         Another transaction has had the gate for more than 2 s.
--   P4000, P4004  An argument.
--
-- Options:
--   next_held  (number) The lowest held number that you saw.
create or replace function pawl_v1.sequence_gate_release(
  p_consumer text,
  p_resource text,
  p_actor    text,
  p_reason   text,
  p_options  jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.sequence_gate;
  v_next   bigint;
begin
  perform pawl_v1._check_options(p_options, '{next_held}');
  perform pawl_v1._check_scope('consumer', p_consumer);
  perform pawl_v1._check_scope('resource', p_resource);
  perform pawl_v1._check_by(p_actor, p_reason);
  v_before := pawl_v1._sequence_gate_enter(p_consumer, p_resource);
  select min(h.seq)
    into v_next
    from pawl.sequence_gate_held as h
   where h.consumer = p_consumer
     and h.resource = p_resource;
  if v_next is null then
    return query
    select 'idle', '{}'::jsonb;
    return;
  end if;
  if v_next <> pawl_v1._int_option(p_options, 'next_held', null, -9223372036854775808, 9223372036854775807) then
    return query
    select 'moved', jsonb_build_object('before', v_before.last, 'next_held', v_next);
    return;
  end if;
  update pawl.sequence_gate as g
     set last = greatest(g.last, v_next - 1)
   where g.consumer = p_consumer
     and g.resource = p_resource;
  perform pawl_v1._sequence_gate_promote(p_consumer, p_resource, v_next);
  perform pawl_v1._sequence_gate_audit('sequence_gate_release', v_before, greatest(v_before.last, v_next - 1), p_actor, p_reason);
  return query
  select 'released', jsonb_build_object('before', v_before.last, 'last', greatest(v_before.last, v_next - 1));
end
$$;

-- gates shows each gate: the number that took effect last, how many deliveries it holds ('held'),
-- the lowest of them (next_held), and since when the first is held ('since'). It counts the held
-- deliveries of each gate that it shows.
create or replace view pawl_v1.gates as
select g.consumer,
       g.resource,
       g.last,
       h.next_held,
       h.held,
       h.since
  from pawl.sequence_gate as g
 cross join lateral (
       select min(o.seq) as next_held,
              count(*) as held,
              min(o.held_at) as since
         from pawl.sequence_gate_held as o
        where o.consumer = g.consumer
          and o.resource = g.resource) as h;

-- Deliveries as received: for replays, for reconciliation, and as evidence of mismatches.

-- delivery_keep stores a delivery as it came, in the transaction and under the key of its claim.
-- inbox_replay uses the last two options.
--
-- Outcomes:
--   kept     Stored.
--   present  It was kept before.
--
-- Errors:
--   P4004         An argument. The payload has at most 4 MiB.
--   P4000, P4001  The consumer or the key.
--
-- Options:
--   headers      (object) Those that may be kept.
--   verified_by  (1 to 255 octets) The check that authenticated the sender.
--   hash         (text) The hash of the claim, in hexadecimal.
--   stored_as    (object) queue and kind, and optionally headers, lane, lane_policy and
--                max_attempts as of inbox_store, and semantic, the inbox key of its second name.
create or replace function pawl_v1.delivery_keep(p_consumer text, p_key text, p_payload bytea, p_options jsonb default '{}')
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_options(p_options, '{headers,verified_by,hash,stored_as}'), pawl_v1._check_scope('consumer', p_consumer),
          pawl_v1._check_key('key', p_key), pawl_v1._check_payload(p_payload), pawl_v1._check_headers(p_options -> 'headers');
  insert into pawl.delivery as d (consumer, key, headers, payload, verified_by, hash, stored_as)
  values (p_consumer, p_key, p_options -> 'headers', p_payload, p_options ->> 'verified_by', decode(p_options ->> 'hash', 'hex'),
          p_options -> 'stored_as')
  on conflict do nothing;
  return query
  select case when found then 'kept' else 'present' end, '{}'::jsonb;
end
$$;

-- delivery_purge deletes deliveries of a consumer that were kept longer ago than p_older_than_ms,
-- at most p_limit (1 to 10,000).
--
-- Outcomes:
--   purged  The column purged is the number of rows. detail.next as of job_key_purge.
--
-- Errors:
--   P4000, P4004  An argument.
--
-- Options:
--   since  (timestamp) As of job_key_purge.
create or replace function pawl_v1.delivery_purge(p_consumer text, p_older_than_ms bigint, p_limit int default 1000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- walk the age index in order: docs/decisions/0036-purging.md
set enable_sort = off
set enable_seqscan = off
as $$
declare
  v_before timestamptz;
  v_due    tid[];
  v_next   timestamptz;
  v_purged int;
begin
  perform pawl_v1._check_options(p_options, '{since}');
  v_before := pawl_v1._purge_before(p_consumer, p_older_than_ms, p_limit);
  select array_agg(o.ctid), max(o.received_at) -- ctids: see job_key_purge
    into v_due, v_next
    from (
      select d.ctid, d.received_at
        from pawl.delivery as d
       where d.received_at < v_before
         and d.received_at >= pawl_v1._since(p_options)
         and d.consumer = p_consumer
       order by d.received_at
       limit p_limit
         for update skip locked
    ) as o;
  delete from pawl.delivery as d
   where d.ctid = any (v_due)
     and d.received_at < v_before;
  get diagnostics v_purged = row_count;
  return query
  select 'purged', v_purged, jsonb_strip_nulls(jsonb_build_object('next', v_next));
end
$$;

-- Waking idle workers. A worker that finds its queue empty for a while takes an exclusive advisory
-- lock on its presence connection. A function that makes a job due tries the shared lock and
-- releases it at once. It notifies only if the lock was taken. So an enqueue notifies only while a
-- worker is idle, and commits do not queue for the lock of NOTIFY. A worker that misses one polls.
--
--   worker   polls · worker_asleep: takes the lock · polls again · waits for a notification
--   enqueue  insert · tries the shared lock: free, no worker is idle · COMMIT
--            insert · tries the shared lock: taken, NOTIFY · COMMIT ──▶ worker: worker_awake, polls

-- _wake_key returns the second number of a queue's lock, whose first is 1885435767. It is also the
-- payload of notifications on pawl_jobs. Queues may share a number.
create or replace function pawl_v1._wake_key(p_queue text)
returns int
language sql
immutable
return hashtext(p_queue);

-- _asleep reports whether a worker of the queue is idle. It is one expression: if the call were
-- interrupted between lock and unlock, the session would keep the lock.
create or replace function pawl_v1._asleep(p_queue text)
returns boolean
language sql
volatile
return case
    when pg_try_advisory_lock_shared(1885435767, pawl_v1._wake_key(p_queue))
      then not pg_advisory_unlock_shared(1885435767, pawl_v1._wake_key(p_queue))
    else true
  end;

-- _wake notifies the idle workers of the queues at COMMIT. Notifying transactions commit one at a
-- time, so at most eight open transactions notify, each with a lock of its own. The woken worker
-- finds the jobs of the others at once or soon after. With a single lock, one long transaction
-- would keep all others from notifying. Where prepared transactions are enabled it does nothing,
-- because PREPARE TRANSACTION refuses a transaction that has notified.
create or replace function pawl_v1._wake(p_queues text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('max_prepared_transactions') = '0' then
    perform pg_notify('pawl_jobs', pawl_v1._wake_key(q.name)::text)
       from (select distinct u.name from unnest(p_queues) as u (name)) as q
      where pawl_v1._asleep(q.name)
        and pg_try_advisory_xact_lock(1885435768 + pg_backend_pid() % 8, pawl_v1._wake_key(q.name));
  end if;
end
$$;

-- _wake_keepers makes the listening keepers read the schedules, at COMMIT. It does so if a schedule
-- is due within a second, their longest poll interval, or if a keeper must compute its next tick.
-- Schedules change rarely, so it does not test whether a keeper is idle. At most eight notify, as
-- in _wake.
create or replace function pawl_v1._wake_keepers(p_next_at timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_next_at < clock_timestamp() + interval '1 second', true)
     and current_setting('max_prepared_transactions') = '0'
     and pg_try_advisory_xact_lock(1885435776, pg_backend_pid() % 8) then
    perform pg_notify('pawl_jobs', 'schedules');
  end if;
end
$$;

-- job_kick notifies the idle workers of these queues, up to 1,000: see worker_asleep. It is a hint,
-- because a worker that misses it polls.
--
-- You seldom need it. These functions notify an idle worker if they make a job due
-- (docs/decisions/0050-wake-ups.md#what-wakes-and-what-waits):
--
-- - job_enqueue, job_enqueue_many, job_retry, job_reschedule, job_cancel, job_cancel_own,
--   job_discard;
-- - outbox_append, outbox_append_many, inbox_store, inbox_replay, schedule_tick, schedule_run_now;
-- - lane_unblock, queue_set, worker_leave, step_settle, step_end;
-- - sequence_gate_pass, sequence_gate_reset, sequence_gate_release.
--
-- Call job_kick on its own after your commit in two cases. In the first, your transaction stayed
-- open for long after it enqueued, so a worker may have become idle meanwhile. In the second, the
-- server has max_prepared_transactions above 0. There no other function notifies, because PREPARE
-- TRANSACTION refuses a transaction that has notified.
--
-- Outcomes:
--   told  The idle workers are notified at the commit.
--
-- Errors:
--   P4000, P4004  An argument.
create or replace function pawl_v1.job_kick(p_queues text[])
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_batch('queues', coalesce(cardinality(p_queues), 0), 1000, coalesce(cardinality(p_queues), 0));
  perform pawl_v1._check_scope('queue', q.name)
     from unnest(p_queues) as q (name);
  perform pg_notify('pawl_jobs', pawl_v1._wake_key(q.name)::text)
     from unnest(p_queues) as q (name)
    where pawl_v1._asleep(q.name);
  return query
  select 'told', '{}'::jsonb;
end
$$;

-- worker_asleep announces that a worker of these queues, up to 1,000, is idle. It returns a row per
-- queue. Until worker_awake, or the end of the session, functions that make a job of them due
-- notify channel 'pawl_jobs'. Without an announcement they send nothing. Use the connection of
-- worker_attend, in this order:
--
-- 1. Run 'listen pawl_jobs', once.
-- 2. Poll until the queue has been empty for a while, such as 60 ms. A busy queue is empty for
--    moments. If each of them were announced, most enqueues would notify, and transactions that
--    notify commit one at a time.
-- 3. Call worker_asleep, once a queue.
-- 4. Claim once more. An enqueue that committed just before sent no notification.
-- 5. Wait for a notification whose payload is 'signal', and continue polling, at longer pauses.
-- 6. When it comes, call worker_awake and claim. Continue at 2. If you found no job, wait longer
--    than before.
--
-- The column signal is the second number of the queue's advisory lock:
-- docs/concepts/leases.md#keys-of-advisory-locks. Queues with the same number wake each other's
-- workers in vain.
--
-- Outcomes:
--   asleep  Announced.
--   taken   Another session is announced for this queue. You receive its notifications as long as
--           you listen. Ask again after a notification, and after some seconds.
--
-- Errors:
--   P4000, P4004  An argument.
create or replace function pawl_v1.worker_asleep(p_queues text[])
returns table (outcome text, queue text, signal text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_batch('queues', coalesce(cardinality(p_queues), 0), 1000, coalesce(cardinality(p_queues), 0));
  perform pawl_v1._check_scope('queue', q.name)
     from unnest(p_queues) as q (name);
  return query
  select case when pg_try_advisory_lock(1885435767, pawl_v1._wake_key(q.name)) then 'asleep' else 'taken' end,
         q.name, pawl_v1._wake_key(q.name)::text, '{}'::jsonb
    from unnest(p_queues) as q (name);
end
$$;

-- worker_awake takes back the announcement of worker_asleep for these queues, up to 1,000, on this
-- session. It returns a row per queue. Call it as soon as a notification arrives or there is work:
-- until then each enqueue notifies.
--
-- Outcomes:
--   awake      Taken back.
--   was_awake  This session had announced none.
--
-- Errors:
--   P4000, P4004  An argument.
create or replace function pawl_v1.worker_awake(p_queues text[])
returns table (outcome text, queue text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set client_min_messages = 'error' -- suppress the warning for a lock that is not held
as $$
begin
  perform pawl_v1._check_batch('queues', coalesce(cardinality(p_queues), 0), 1000, coalesce(cardinality(p_queues), 0));
  perform pawl_v1._check_scope('queue', q.name)
     from unnest(p_queues) as q (name);
  return query
  select case when pg_advisory_unlock(1885435767, pawl_v1._wake_key(q.name)) then 'awake' else 'was_awake' end, q.name, '{}'::jsonb
    from unnest(p_queues) as q (name);
end
$$;

-- A job moves between these states:
--
--                          claim: fence + 1, attempts + 1
--     enqueue ──▶ pending ───────────────────────────────▶ processing ──finish──▶ (row deleted)
--                   ▲                                        │   │
--                   ├──────── fail, attempts left ───────────┘   │
--                   ├──────── release: attempts - 1 ─────────────┤
--                   ├──────── sweep: crashes + 1 ────────────────┤
--                   │                                            ├── none left ──▶ dead_letter
--                   └──────── job_retry, by an operator ◀────────┴── cancel ─────▶ cancelled
--
-- In a lane a job is waiting before it is pending, unless the lane is empty.

create or replace function pawl_v1._job_insert(p_id bigint, p_queue text, p_kind text, p_payload bytea, p_options jsonb,
  p_lane bigint default null)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_position bigint;
  v_head     boolean := false;
begin
  if p_lane is not null then
    v_position := nextval('pawl.position_seq');
    v_head := not pawl_v1._lane_is_open(p_lane);
  end if;
  -- One test; the check functions are called only if it fails.
  if (octet_length(p_queue) between 1 and 255 and octet_length(p_kind) between 1 and 255 and octet_length(p_payload) <= 4194304
      and not p_options ? 'headers') is not true then
    perform pawl_v1._check_scope('queue', p_queue), pawl_v1._check_scope('kind', p_kind), pawl_v1._check_payload(p_payload),
            pawl_v1._check_headers(p_options -> 'headers');
  end if;
  insert into pawl.job as j (id, queue, kind, payload, headers, priority, attempts, crashes, max_attempts, available_at, lane_id,
                             position, lane_head, status)
  overriding system value
  values (
    p_id, p_queue, p_kind, p_payload, p_options -> 'headers',
    pawl_v1._int_option(p_options, 'priority', 2, 1, 4),
    pawl_v1._int_option(p_options, 'attempts', 0, 0, 1000),
    pawl_v1._int_option(p_options, 'crashes', 0, 0, 1000),
    pawl_v1._int_option(p_options, 'max_attempts', 25, 1, 1000),
    clock_timestamp() + pawl_v1._int_option(p_options, 'retry_in_ms', 0, 0, 31536000000) * interval '1 millisecond',
    p_lane, v_position, v_head, case when p_lane is null or v_head then 'pending' else 'waiting' end
  );
  if (p_lane is null or v_head) and coalesce(p_options ->> 'retry_in_ms', '0') = '0' and pawl_v1._asleep(p_queue) then
    perform pawl_v1._wake(array[p_queue]);
  end if;
end
$$;

-- _job_hash is the default fingerprint of a job: kind and payload, each after its length.
create or replace function pawl_v1._job_hash(p_kind text, p_payload bytea)
returns bytea
language sql
stable -- as convert_to is
return sha256(int8send(octet_length(p_kind)) || convert_to(p_kind, 'UTF8') || int8send(octet_length(p_payload)) || p_payload);

create or replace function pawl_v1._raise_key_reused(p_queue text, p_key text, p_stored bytea, p_given bytea)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'key % of queue % came before with a different payload', p_key, p_queue
    using errcode = 'P4002',
          detail = json_build_object('stored_hash', encode(p_stored, 'hex'), 'given_hash', encode(p_given, 'hex')),
          hint = 'use a new key for a new intent, or fix the caller that changes its payload between retries';
end
$$;

-- job_enqueue enqueues one job, in your transaction if there is one: the job exists if and only if
-- you commit.
--
-- If an open transaction has enqueued the key, the call waits for its end, up to your lock_timeout.
-- With option 'lane', others that enqueue into the lane wait until your transaction ends. At
-- REPEATABLE READ and above both you and they may get 40001. A duplicate enters no lane. Ids grow
-- and may have gaps.
--
-- Outcomes:
--   enqueued   job_id is the new job.
--   duplicate  The key came before. job_id is the first job, which may have finished since. Commit
--              before you rely on it.
--
-- Errors:
--   P4002  The key came before with another payload. DETAIL holds both hashes.
--   P4000, P4001, P4003, P4004
--          An argument. p_payload has at most 4 MiB.
--   40001  A key or a lane appeared and disappeared three times. Restart the transaction.
--
-- Options:
--   key           (1 to 255 octets, default none) The same key, queue and payload enqueue once.
--   hash          (64 hexadecimal digits, default over kind and payload) Tells payloads apart under
--                 one key.
--   retention_ms  (1 s to 10 years, default 24 h) How long the key is remembered: expires_at of its
--                 row in pawl.job_key. Workers purge expired keys of ended jobs about once a
--                 minute; without a Go worker call job_key_purge. Until it is purged, an expired
--                 key still counts.
--   priority      (1 to 4, default 2) 1 is claimed first.
--   retry_in_ms   (0 to a year, default 0) The earliest start, from now.
--   max_attempts  (1 to 1000, default 25) After so many attempts the job is a dead letter.
--   headers       (object, default none) Stored beside the payload.
--   lane          (1 to 255 octets, default none) Jobs of one lane of a queue run one at a time, in
--                 the order in which they were enqueued.
--   lane_policy   ('block', 'park' or 'skip', default 'block') The policy of a new lane: see
--                 lane_policy. A lane that exists keeps its own.
create or replace function pawl_v1.job_enqueue(
  p_queue   text,
  p_kind    text,
  p_payload    bytea,
  p_options jsonb default '{}'
)
returns table (outcome text, job_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_usual  boolean;
  v_id     bigint := nextval('pawl.job_id_seq');
  v_key    text := p_options ->> 'key';
  v_hash   bytea;
  v_owner  bigint; -- the job that has the key already
  v_stored bytea;
  v_lane   bigint;
begin
  -- Most calls need only the defaults. Looking for options takes as long as the insert.
  v_usual := coalesce(p_options - '{headers,key,hash,retention_ms}'::text[] = '{}'
    and coalesce(jsonb_typeof(p_options -> 'headers'), 'object') = 'object'
    and octet_length(p_queue) between 1 and 255 and octet_length(p_kind) between 1 and 255 and octet_length(p_payload) <= 4194304, false);
  if not v_usual then
    perform pawl_v1._check_options(p_options, '{key,hash,retention_ms,priority,retry_in_ms,max_attempts,headers,lane,lane_policy}');
  end if;
  if v_key is not null then
    if p_options ->> 'hash' !~ '^([0-9A-Fa-f]{2})*$' then
      raise exception 'option hash must be 64 hexadecimal digits'
        using errcode = 'P4003', hint = 'pass encode(sha256(payload), ''hex'')';
    end if;
    v_hash := coalesce(decode(p_options ->> 'hash', 'hex'), pawl_v1._job_hash(p_kind, p_payload));
    perform pawl_v1._check_scope('queue', p_queue), pawl_v1._check_key('key', v_key), pawl_v1._check_hash(v_hash);
    -- Insert or observe, as inbox_claim does.
    for v_try in 1..3 loop
      insert into pawl.job_key as k (queue, key, hash, job_id, expires_at)
      values (p_queue, v_key, v_hash, v_id,
              clock_timestamp() + pawl_v1._ms_option(p_options, 'retention_ms', 86400000, 1000, 315360000000))
      on conflict do nothing;
      exit when found;
      select k.job_id, k.hash
        into v_owner, v_stored
        from pawl.job_key as k
       where k.queue = p_queue
         and k.key = v_key;
      if found then
        if v_stored <> v_hash then
          perform pawl_v1._raise_key_reused(p_queue, v_key, v_stored, v_hash);
        end if;
        return query
        select 'duplicate', v_owner,
               case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unreplicated() end;
        return;
      end if;
      if v_try = 3 then
        raise exception 'key % of queue % keeps appearing and disappearing', v_key, p_queue
          using errcode = '40001', hint = 'restart the transaction';
      end if;
    end loop;
  end if;
  if v_usual then
    insert into pawl.job as j (id, queue, kind, payload, headers)
    overriding system value
    values (v_id, p_queue, p_kind, p_payload, p_options -> 'headers');
    if pawl_v1._asleep(p_queue) then
      perform pawl_v1._wake(array[p_queue]);
    end if;
  else
    -- The lane's row stays locked, so the next job of the lane gets a later position.
    if p_options ? 'lane' then
      v_lane := (pawl_v1._lanes_enter(array[p_queue], array[p_options ->> 'lane'], p_options))[1];
    end if;
    perform pawl_v1._job_insert(v_id, p_queue, p_kind, p_payload, p_options, v_lane);
  end if;
  outcome := 'enqueued';
  job_id := v_id;
  detail := '{}';
  return next;
end
$$;

-- job_enqueue_many enqueues up to 10,000 jobs in one statement. Element i of every array belongs to
-- job i, and the arrays are equally long. A null array, or a null element, means the default of
-- job_enqueue. The rows come in order, and n counts from 1. Outcomes are those of job_enqueue. A
-- key that comes twice in one batch is a duplicate of its first row. Single jobs and batches share
-- the keys.
--
-- Keys and lanes are locked in sorted order, so two calls cannot deadlock with each other. Several
-- calls in one transaction can.
--
-- Outcomes:
--   enqueued   job_id is the new job.
--   duplicate  The key came before, or earlier in the batch. job_id is the first job.
--
-- Errors:
--   P4002  A key came before, or earlier in the batch, with another payload. DETAIL holds both
--          hashes. No job is enqueued.
--   40P01  Several calls in one transaction met several in another. Restart the transaction.
--   40001  Keys or lanes appeared and disappeared three times. Restart the transaction.
--   P4000, P4001, P4003, P4004
--          An element, or the lengths. No job is enqueued.
--
-- Options:
--   retention_ms  (1 s to 10 years, default 24 h) As of job_enqueue, for all keys.
--   lanes         (array of texts and nulls, default none) The lane of each job.
--   lane_policy   ('block', 'park' or 'skip', default 'block') As of job_enqueue, for all new
--                 lanes.
create or replace function pawl_v1.job_enqueue_many(
  p_queues       text[],
  p_kinds        text[],
  p_payload         bytea[],
  p_keys         text[] default null,
  p_hashes       bytea[] default null,
  p_priorities   int[] default null,
  p_retry_in_ms  bigint[] default null,
  p_max_attempts int[] default null,
  p_headers      jsonb[] default null,
  p_options      jsonb default '{}'
)
returns table (n int, outcome text, job_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count  int := coalesce(cardinality(p_queues), 0);
  v_ids    bigint[];
  v_hashes bytea[];
  v_owners bigint[]; -- of the keys; null: no job has one
  v_names  text[];
  v_lanes  bigint[];
  v_unreplicated jsonb := '{}';
  v_new    bigint; -- number of new jobs
begin
  perform pawl_v1._check_options(p_options, '{retention_ms,lanes,lane_policy}'),
          pawl_v1._check_batch('queues', v_count, 10000, coalesce(cardinality(p_kinds), 0), coalesce(cardinality(p_payload), 0),
    coalesce(cardinality(p_keys), v_count), coalesce(cardinality(p_hashes), v_count),
    coalesce(cardinality(p_priorities), v_count), coalesce(cardinality(p_retry_in_ms), v_count),
    coalesce(cardinality(p_max_attempts), v_count), coalesce(cardinality(p_headers), v_count));
  if v_count = 0 then
    return;
  end if;
  perform pawl_v1._check_scope('queue', r.queue), pawl_v1._check_scope('kind', r.kind), pawl_v1._check_payload(r.payload),
          pawl_v1._check_headers(r.headers), pawl_v1._check_int('priority', r.priority, 1, 4),
          pawl_v1._check_int('retry_in_ms', r.retry_in_ms, 0, 31536000000),
          pawl_v1._check_int('max_attempts', r.max_attempts, 1, 1000)
     from unnest(p_queues, p_kinds, p_payload, p_priorities, p_retry_in_ms, p_max_attempts, p_headers)
            as r (queue, kind, payload, priority, retry_in_ms, max_attempts, headers)
    where r.queue is null or octet_length(r.queue) not between 1 and 255
       or r.kind is null or octet_length(r.kind) not between 1 and 255
       or r.payload is null or octet_length(r.payload) > 4194304
       or r.priority not between 1 and 4
       or r.retry_in_ms not between 0 and 31536000000
       or r.max_attempts not between 1 and 1000
       or jsonb_typeof(r.headers) not in ('object', 'null');

  v_ids := array(select nextval('pawl.job_id_seq') from generate_series(1, v_count));
  if array_length(array_remove(p_keys, null), 1) > 0 then
    perform pawl_v1._check_key('key', r.key), pawl_v1._check_hash(r.hash)
       from unnest(p_keys, p_hashes) as r (key, hash)
      where octet_length(r.key) not between 1 and 255
         or octet_length(r.hash) <> 32;
    v_hashes := array(
      select case when r.key is not null then coalesce(r.hash, pawl_v1._job_hash(r.kind, r.payload)) end
        from unnest(p_keys, p_hashes, p_kinds, p_payload) with ordinality as r (key, hash, kind, payload, n)
       order by r.n);
    v_owners := pawl_v1._job_keys_claim(p_queues, p_keys, v_hashes, v_ids,
      pawl_v1._int_option(p_options, 'retention_ms', 86400000, 1000, 315360000000) * interval '1 millisecond');
  end if;

  v_names := pawl_v1._text_array_option(p_options, 'lanes');
  if array_length(array_remove(v_names, null), 1) > 0 then
    perform pawl_v1._check_batch('queues', v_count, 10000, cardinality(v_names));
    v_owners := coalesce(v_owners, v_ids);
    -- A duplicate enters no lane.
    v_names := array(select case when r.owner = r.id then r.name end
                       from unnest(v_ids, v_owners, v_names) with ordinality as r (id, owner, name, n) order by r.n);
    v_lanes := pawl_v1._lanes_enter(p_queues, v_names, p_options);
    insert into pawl.job as j (id, queue, kind, payload, headers, priority, max_attempts, available_at, lane_id, position, lane_head, status)
    overriding system value
    select o.id, o.queue, o.kind, o.payload, o.headers, o.priority, o.max_attempts, o.available_at, o.lane_id,
           case when o.lane_id is not null then nextval('pawl.position_seq') end,
           o.head,
           case when o.lane_id is null or o.head then 'pending' else 'waiting' end
      from (
        select r.id, r.queue, r.kind, r.payload, r.headers, coalesce(r.priority, 2) as priority,
               coalesce(r.max_attempts, 25) as max_attempts,
               clock_timestamp() + coalesce(r.retry_in_ms, 0) * interval '1 millisecond' as available_at,
               r.lane_id,
               r.lane_id is not null
                 and row_number() over (partition by r.lane_id order by r.n) = 1
                 and not pawl_v1._lane_is_open(r.lane_id) as head
          from unnest(v_ids, v_owners, p_queues, p_kinds, p_payload, p_priorities, p_retry_in_ms, p_max_attempts, p_headers, v_lanes)
                 with ordinality as r (id, owner, queue, kind, payload, priority, retry_in_ms, max_attempts, headers, lane_id, n)
         where r.owner = r.id
         order by r.n
      ) as o;
  else
    insert into pawl.job as j (id, queue, kind, payload, headers, priority, max_attempts, available_at)
    overriding system value
    select r.id, r.queue, r.kind, r.payload, r.headers, coalesce(r.priority, 2), coalesce(r.max_attempts, 25),
           clock_timestamp() + coalesce(r.retry_in_ms, 0) * interval '1 millisecond'
      from unnest(v_ids, v_owners, p_queues, p_kinds, p_payload, p_priorities, p_retry_in_ms, p_max_attempts, p_headers)
             as r (id, owner, queue, kind, payload, priority, retry_in_ms, max_attempts, headers)
     where r.owner is null or r.owner = r.id;
  end if;
  get diagnostics v_new = row_count;
  if v_new > 0 and 0 = any (p_retry_in_ms) is distinct from false then
    -- Most batches have one queue, which is cheaper to detect than to deduplicate.
    if p_queues[1] <> any (p_queues) then
      perform pawl_v1._wake(p_queues);
    elsif pawl_v1._asleep(p_queues[1]) then
      perform pawl_v1._wake(p_queues[1:1]);
    end if;
  end if;

  if v_owners is null then
    return query
    select r.n::int, 'enqueued', r.id, '{}'::jsonb
      from unnest(v_ids) with ordinality as r (id, n)
     order by r.n;
    return;
  end if;
  if v_owners <> v_ids and current_setting('synchronous_standby_names') <> '' then
    v_unreplicated := pawl_v1._unreplicated();
  end if;
  return query
  select r.n::int, case when r.owner = r.id then 'enqueued' else 'duplicate' end, r.owner, case when r.owner = r.id then '{}' else v_unreplicated end
    from unnest(v_ids, v_owners) with ordinality as r (id, owner, n)
   order by r.n;
end
$$;

-- _job_keys_claim inserts or observes many keys. It returns the jobs that own them, or p_ids[i]
-- without a key.
create or replace function pawl_v1._job_keys_claim(p_queues text[], p_keys text[], p_hashes bytea[], p_ids bigint[], p_ttl interval)
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_gone boolean;
  v_odd  record;
  v_owners bigint[];
begin
  for v_try in 1..3 loop
    insert into pawl.job_key as k (queue, key, hash, job_id, expires_at)
    select distinct on (r.queue collate "C", r.key collate "C") r.queue, r.key, r.hash, r.id, clock_timestamp() + p_ttl
      from unnest(p_queues, p_keys, p_hashes, p_ids) with ordinality as r (queue, key, hash, id, n)
     where r.key is not null
     order by r.queue collate "C", r.key collate "C", r.n
    on conflict do nothing;

    select array_agg(coalesce(k.job_id, r.id) order by r.n), coalesce(bool_or(r.key is not null and k.job_id is null), false)
      into v_owners, v_gone
      from unnest(p_queues, p_keys, p_ids) with ordinality as r (queue, key, id, n)
      left join lateral (
             select o.job_id
               from pawl.job_key as o
              where o.queue = r.queue
                and o.key = r.key
              limit 1) as k on true;
    exit when not v_gone;
  end loop;
  if v_gone then
    raise exception 'some keys keep appearing and disappearing'
      using errcode = '40001', hint = 'restart the transaction';
  end if;
  select r.queue, r.key, r.hash, k.hash as stored
    into v_odd
    from unnest(p_queues, p_keys, p_hashes) with ordinality as r (queue, key, hash, n)
   cross join lateral (
          select o.hash
            from pawl.job_key as o
           where o.queue = r.queue
             and o.key = r.key
           limit 1) as k
   where k.hash <> r.hash
   order by r.n
   limit 1;
  if found then
    perform pawl_v1._raise_key_reused(v_odd.queue, v_odd.key, v_odd.stored, v_odd.hash);
  end if;
  return v_owners;
end
$$;

-- Claiming: many due jobs, or one by its id. The holder is a registered worker, whose heartbeat
-- renews the lease of all its jobs. With p_worker null the holder is any process that knows the
-- fence. The row then has its own lease, which job_renew renews.

-- _claim_begun locks the due jobs of a queue that were tried before, in the order of job_claim.
-- They have their own index: a draining queue may hold many jobs that must not be claimed.
create or replace function pawl_v1._claim_begun(p_queue text, p_limit int, p_kinds text[], p_due timestamptz, p_crashed boolean)
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_found bigint[];
  v_solo  int;
begin
  select array_agg(c.id), array_position(array_agg(c.crashes > 0), true)
    into v_found, v_solo
    from (
      select j.id, j.crashes
        from pawl.job as j
       where j.queue = p_queue
         and j.status = 'pending'
         and (j.attempts > 0 or j.crashes > 0)
         and j.available_at <= p_due
         and (p_kinds is null or j.kind = any (p_kinds))
         and (p_crashed or j.crashes = 0)
       order by j.priority, j.available_at, j.id
       limit p_limit
         for update skip locked
    ) as c;
  return case when v_solo is null then v_found else v_found[1 : greatest(v_solo - 1, 1)] end;
end
$$;

-- job_claim claims up to p_limit (1 to 500) due jobs, most urgent first, then oldest. The rows come
-- in no particular order. Each gets fence + 1 and attempts + 1. No row means that no job is due.
-- detail of a job in a lane has 'lane' and 'position'.
--
-- A job with crashes above 0 was running when a process died. It is claimed alone, so that it
-- cannot crash its neighbours. Run it with no other job in the process, and report this with
-- worker_isolate. A paused queue returns no jobs. A draining queue returns only jobs that were
-- tried before: see queue_set.
--
-- p_worker is a worker of worker_register, whose heartbeat renews the lease of all it holds. Null
-- claims without one: each row then has a lease of its own, which job_renew renews. Both kinds of
-- holder may work side by side. See docs/concepts/leases.md.
--
-- Errors:
--   P4020  The worker's lease is lost. Register again.
--   P4004  An argument.
--
-- Options:
--   kinds     (array of texts, default all) Claim no other kinds. Each claim skips due jobs of
--             other kinds, so give rarely claimed kinds a queue of their own.
--   crashed   (boolean, default true) False skips jobs with crashes above 0, for a process that is
--             running one.
--   lease_ms  (1 s to 12 h, default 30 s) The lease of each row. With a worker it is refused
--             (P4004).
--   since     (array of four times or nulls, one a priority, default none) Skip jobs that were due
--             earlier. Under an old snapshot this keeps the claim fast. Also claim without it often
--             enough, or jobs that became due before it are never seen:
--             docs/decisions/0014-watermark.md.
create or replace function pawl_v1.job_claim(
  p_queue   text,
  p_worker  bigint,
  p_limit   int default 25,
  p_options jsonb default '{}'
)
returns table (
  id bigint, fence bigint, kind text, payload bytea, headers jsonb, attempts int, max_attempts int, crashes int,
  priority int, created_at timestamptz, available_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_due    timestamptz := clock_timestamp();
  v_lease  timestamptz;
  v_kinds  text[];
  v_crashed boolean;
  v_since  timestamptz[];
  v_mark   timestamptz;
  v_mode   text;
  v_ids    bigint[] := '{}';
  v_found  bigint[];
  v_solo   int; -- position in v_found of the first crashed job
begin
  perform pawl_v1._check_options(p_options, '{kinds,crashed,lease_ms,since}');
  if p_limit is null or p_limit not between 1 and 500 then
    raise exception 'limit must lie between 1 and 500, it is %', coalesce(p_limit::text, 'null')
      using errcode = 'P4004';
  end if;
  v_kinds := pawl_v1._text_array_option(p_options, 'kinds');
  v_crashed := coalesce((p_options ->> 'crashed')::boolean, true);
  v_since := pawl_v1._text_array_option(p_options, 'since')::timestamptz[];
  v_lease := pawl_v1._lease_of_claim(p_worker, p_options, v_due);
  select q.mode
    into v_mode
    from pawl.queue as q
   where q.name = p_queue;
  if v_mode = 'paused' then
    return;
  end if;

  if v_mode = 'draining' then
    v_ids := pawl_v1._claim_begun(p_queue, p_limit, v_kinds, v_due, v_crashed);
  else
    for v_priority in 1..4 loop
      v_mark := coalesce(v_since[v_priority], '-infinity');
      select array_agg(c.id), array_position(array_agg(c.crashes > 0), true)
        into v_found, v_solo
        from (
          select j.id, j.crashes
            from pawl.job as j
           where j.queue = p_queue
             and j.priority = v_priority
             and j.status = 'pending'
             and j.available_at between v_mark and v_due
             and (v_kinds is null or j.kind = any (v_kinds))
             and (v_crashed or j.crashes = 0)
           order by j.available_at, j.id
           limit p_limit - cardinality(v_ids)
             for update skip locked
        ) as c;
      if v_solo = 1 and cardinality(v_ids) = 0 then
        v_ids := v_found[1:1];
        exit;
      end if;
      -- After healthy jobs a crashed job waits; it is the first of the next claim.
      if v_solo is not null then
        v_found := v_found[1 : v_solo - 1];
      end if;
      v_ids := v_ids || v_found;
      exit when v_solo is not null or cardinality(v_ids) >= p_limit;
    end loop;
  end if;

  -- The rows are locked and were pending. A second test of status would let the planner walk index
  -- job_claim. The subselect hides the length of the array: for a visible long array the planner
  -- could read the whole table; for a hidden one it expects ten elements.
  return query
  update pawl.job as j
     set status = 'processing',
         fence = j.fence + 1,
         -- Jobs of unknown kinds are not dead-lettered, so bound it.
         attempts = least(j.attempts + 1, 32767),
         claimed_by = coalesce(p_worker, 0),
         lease_expires_at = v_lease
   where j.id = any (array(select unnest(v_ids)))
  returning j.id, j.fence, j.kind::text, j.payload, j.headers, j.attempts::int, j.max_attempts::int, j.crashes::int,
            j.priority::int, j.created_at, j.available_at,
            -- _lane_of inlined by hand: a call costs more than the lookup.
            case when j.lane_id is null then '{}' else (
              select jsonb_build_object('lane', l.name, 'position', j.position) from pawl.lane as l where l.id = j.lane_id) end;
end
$$;

-- job_claim_id claims one job by its id, for a message or a person that asks to run job 17. It
-- never waits. p_worker as of job_claim. Unless the outcome is 'claimed', nothing changed and the
-- job's columns are null, except available_at. A job with crashes above 0 must begin alone: see
-- worker_isolate.
--
-- Outcomes:
--   claimed  The job is yours, with fence + 1 and attempts + 1.
--   not_due  It is pending until available_at.
--   busy     An attempt holds it, or its row is locked now.
--   waiting  It is behind another job of its lane.
--   ended    detail.status is 'dead_letter', 'cancelled' or 'unknown'.
--   paused   It is due, but its queue is paused, or drains and the job was not tried before: see
--            queue_set.
--   absent   It finished, was discarded, or never existed.
--
-- Errors:
--   P4020  The worker's lease is lost. Register again.
--   P4004  An argument.
--
-- Options:
--   early     (boolean) Claim it although it is not due.
--   lease_ms  (1 s to 12 h, default 30 s) As of job_claim.
create or replace function pawl_v1.job_claim_id(p_id bigint, p_worker bigint, p_options jsonb default '{}')
returns table (
  outcome text, id bigint, fence bigint, queue text, kind text, payload bytea, headers jsonb, attempts int,
  max_attempts int, crashes int, priority int, created_at timestamptz, available_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_due     timestamptz := clock_timestamp();
  v_lease   timestamptz;
  v_job     pawl.job;
  v_outcome text;
begin
  perform pawl_v1._check_options(p_options, '{early,lease_ms}');
  v_lease := pawl_v1._lease_of_claim(p_worker, p_options, v_due);

  select j.*
    into v_job
    from pawl.job as j
   where j.id = p_id
     for update skip locked;
  if not found then
    perform from pawl.job as j where j.id = p_id;
    v_outcome := case when found then 'busy' else 'absent' end;
  else
    v_outcome := case
      when v_job.status = 'processing' then 'busy'
      when v_job.status = 'waiting' then 'waiting'
      when v_job.status <> 'pending' then 'ended'
      when v_job.available_at > v_due and not coalesce((p_options ->> 'early')::boolean, false) then 'not_due'
      when exists (
             select
               from pawl.queue as q
              where q.name = v_job.queue
                and (q.mode = 'paused' or q.mode = 'draining' and v_job.attempts = 0 and v_job.crashes = 0)) then 'paused'
      else 'claimed'
    end;
  end if;
  if v_outcome <> 'claimed' then
    return query
    select v_outcome, null::bigint, null::bigint, null::text, null::text, null::bytea, null::jsonb, null::int, null::int,
           null::int, null::int, null::timestamptz, v_job.available_at,
           jsonb_strip_nulls(jsonb_build_object('status', v_job.status))
             || case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unreplicated() end;
    return;
  end if;

  return query
  update pawl.job as j
     set status = 'processing',
         fence = j.fence + 1,
         attempts = least(j.attempts + 1, 32767),
         claimed_by = coalesce(p_worker, 0),
         lease_expires_at = v_lease
   where j.id = p_id
  returning 'claimed', j.id, j.fence, j.queue::text, j.kind::text, j.payload, j.headers, j.attempts::int, j.max_attempts::int,
            j.crashes::int, j.priority::int, j.created_at, j.available_at,
            case when j.lane_id is null then '{}' else pawl_v1._lane_of(j.lane_id, j.position) end;
end
$$;

-- _lease_of_claim checks the worker's lease and returns null. Without a worker it returns the end
-- of the row's own lease. The sweep locks the worker row FOR UPDATE before it touches the worker's
-- jobs, so no job can be claimed for a worker that is being swept.
create or replace function pawl_v1._lease_of_claim(p_worker bigint, p_options jsonb, p_now timestamptz)
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_worker is null then
    return p_now + pawl_v1._int_option(p_options, 'lease_ms', 30000, 1000, 43200000) * interval '1 millisecond';
  end if;
  if p_options ->> 'lease_ms' is not null then
    raise exception 'lease_ms is for claims without a worker; worker % has a lease of its own', p_worker
      using errcode = 'P4004', hint = 'give the lease to worker_register';
  end if;
  perform
     from pawl.worker as w
    where w.id = p_worker
      and w.seen_at + w.lease > p_now
      for key share;
  if not found then
    raise exception 'worker % has lost its lease', p_worker
      using errcode = 'P4020', detail = 'worker', hint = 'register again and drop what this worker held';
  end if;
  return null;
end
$$;

-- job_renew renews the lease of a job that was claimed without a worker. Call it at a third of the
-- lease. A lease that has ended can be renewed until a sweep has noticed.
--
-- Outcomes:
--   renewed  The lease ends at lease_expires_at.
--
-- Errors:
--   P4020  You do not hold the job, or a worker does: its heartbeat renews it. DETAIL as of
--          job_hold.
--   55P03  Another transaction has had the row for more than 2 s. The state is not known yet.
--   P4004  An argument.
--
-- Options:
--   lease_ms  (1 s to 12 h, default 30 s) The new lease, from now.
create or replace function pawl_v1.job_renew(p_id bigint, p_fence bigint, p_options jsonb default '{}')
returns table (outcome text, lease_expires_at timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_until timestamptz;
begin
  perform pawl_v1._check_options(p_options, '{lease_ms}');
  update pawl.job as j
     set lease_expires_at = clock_timestamp()
           + pawl_v1._int_option(p_options, 'lease_ms', 30000, 1000, 43200000) * interval '1 millisecond'
   where j.id = p_id
     and j.status = 'processing'
     and j.fence = p_fence
     and j.lease_expires_at is not null -- testing claimed_by would let the planner walk job_held
  returning j.lease_expires_at
       into v_until;
  if not found then
    perform pawl_v1._raise_fence_lost(p_id, p_fence);
  end if;
  return query
  select 'renewed', v_until, '{}'::jsonb;
end
$$;

-- The ends of an attempt: hold, finish, fail, release. A stale attempt changes nothing.

create or replace function pawl_v1._error_pushed(p_errors jsonb, p_error jsonb, p_attempt int, p_fence bigint, p_worker bigint, p_lease_ended timestamptz)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select jsonb_agg(e.entry order by e.n)
      from (
        select h.entry, h.n
          from jsonb_array_elements(
                 coalesce(p_errors, '[]') || jsonb_build_array(jsonb_build_object(
                   'at', clock_timestamp(),
                   'attempt', p_attempt,
                   'code', p_error ->> 'code',
                   'error', left(p_error ->> 'error', 4000)) || jsonb_strip_nulls(jsonb_build_object(
                   'fence', p_fence,
                   'worker', (select w.name from pawl.worker as w where w.id = p_worker),
                   'lease_ended_at', case when isfinite(p_lease_ended) then p_lease_ended end)))
               ) with ordinality as h (entry, n)
         order by h.n desc
         limit 10
      ) as e);
end
$$;

-- _push_error appends to the error history: the last 10 errors, each cut to 4,000 characters. An
-- entry has the attempt's fence and worker if known, and the end of its lease if it ended by that.
create or replace function pawl_v1._push_error(p_errors jsonb, p_error jsonb, p_attempt int, p_fence bigint default null, p_worker bigint default null,
                                               p_lease_ended timestamptz default null)
returns jsonb
language sql
return case when p_error is null then p_errors else pawl_v1._error_pushed(p_errors, p_error, p_attempt, p_fence, p_worker, p_lease_ended) end;

-- _raise_fence_lost raises P4020. DETAIL is the state of the job: absent (finished by a successor
-- or by your own lost COMMIT, or discarded), cancelled, dead_letter, or superseded.
create or replace function pawl_v1._raise_fence_lost(p_id bigint, p_fence bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_status text;
begin
  select case when j.status in ('cancelled', 'dead_letter') then j.status else 'superseded' end
    into v_status
    from pawl.job as j
   where j.id = p_id;
  raise exception 'job % is not held with fence %', p_id, p_fence
    using errcode = 'P4020',
          detail = coalesce(v_status, 'absent'),
          hint = 'a newer attempt owns this job or it has ended; drop this attempt';
end
$$;

-- _job_wait locks a job that another transaction has locked. After 2 s it raises 55P03. It is a
-- separate function, because setting a timeout costs more than most calls, which need not wait.
create or replace function pawl_v1._job_wait(p_id bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  perform
     from pawl.job as j
    where j.id = p_id
      for update;
end
$$;

-- job_hold locks a claimed job's row and checks the fence. Call it first in the transaction that
-- does the work. A stale attempt then stops before it writes. While the transaction is open, no
-- other worker takes the job over. The example is under job_finish.
--
-- Outcomes:
--   held  The row is locked until this transaction ends.
--
-- Errors:
--   P4020  You do not hold the job. DETAIL is its state: 'superseded', 'dead_letter', 'cancelled',
--          or 'absent' (discarded, or finished by a successor or by your own COMMIT whose reply was
--          lost).
--   55P03  Another transaction has had the row for more than 2 s. The state is not known yet.
create or replace function pawl_v1.job_hold(p_id bigint, p_fence bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_status text;
  v_fence  bigint;
begin
  select j.status, j.fence
    into v_status, v_fence
    from pawl.job as j
   where j.id = p_id
     for update skip locked;
  if not found then
    perform pawl_v1._job_wait(p_id);
    select j.status, j.fence
      into v_status, v_fence
      from pawl.job as j
     where j.id = p_id;
  end if;
  if v_status is distinct from 'processing' or v_fence is distinct from p_fence then
    perform pawl_v1._raise_fence_lost(p_id, p_fence);
  end if;
  return query
  select 'held', '{}'::jsonb;
end
$$;

-- job_finish ends a job with success. The row is deleted, or archived if its queue has an archive:
-- see queue_set. Call it in the transaction that did the work, so that both commit together.
--
-- P4020 aborts the transaction and your rows with it, unless you catch it in a savepoint. Then the
-- rows before the savepoint survive, so do not catch it.
--
-- Outcomes:
--   finished  The job ends once this transaction commits.
--
-- Errors:
--   P4020, 55P03  As of job_hold.
--
-- Members of detail, if the job was in a lane:
--   promoted  The number of jobs that may be claimed once you have committed.
--   skipped   Ids of lanes that another transaction has locked. Call lane_promote for each after
--             your commit. If you do not, lane_sweep finds them.
create or replace function pawl_v1.job_finish(p_id bigint, p_fence bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_lane bigint;
begin
  for v_try in 1..2 loop
    delete from pawl.job as j
     where j.id = (
             select l.id
               from pawl.job as l
              where l.id = p_id
                and l.status = 'processing'
                and l.fence = p_fence
                for update skip locked)
       and j.queue <> all (array(select q.name from pawl.queue as q where q.archive))
    returning j.lane_id
         into v_lane;
    if not found then
      select j.lane_id
        into v_lane
        from pawl.job as j
       where j.id = p_id
         and j.status = 'processing'
         and j.fence = p_fence
         and j.queue = any (array(select q.name from pawl.queue as q where q.archive))
         for update skip locked;
      if found then
        perform pawl_v1._archive(array[p_id]);
      end if;
    end if;
    if found then
      return query
      select 'finished', case when v_lane is null then '{}' else pawl_v1._lanes_free(array[v_lane]) end;
      return;
    end if;
    perform
       from pawl.job as j
      where j.id = p_id
        and j.fence = p_fence;
    exit when not found;
    perform pawl_v1._job_wait(p_id);
  end loop;
  perform pawl_v1._raise_fence_lost(p_id, p_fence);
end
$$;

-- _jobs_wait waits, in id order, for jobs that another transaction has locked: up to p_ms for one
-- and for all. The usual holder is a claim with an older snapshot, which shows the row still
-- pending. PostgreSQL locks the newest version of a row before it tests it again. The claim does
-- not take that row, but holds its lock until it commits.
create or replace function pawl_v1._jobs_wait(p_ids bigint[], p_ms int)
returns void
language plpgsql
set lock_timeout = '2s' -- so that the function's end restores the setting
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id    bigint;
  v_since timestamptz := clock_timestamp();
begin
  perform set_config('lock_timeout', p_ms::text, true);
  for v_id in select w.id from unnest(p_ids) as w (id) order by w.id loop
    begin
      perform from pawl.job as j where j.id = v_id for update;
    exception
      when lock_not_available or deadlock_detected then
        return;
    end;
    exit when clock_timestamp() > v_since + p_ms * interval '1 millisecond';
  end loop;
end
$$;

-- _jobs_elsewhere returns those of p_ids that are still held with their fence but locked by another
-- transaction. p_locked are the ones that this transaction has locked.
create or replace function pawl_v1._jobs_elsewhere(p_ids bigint[], p_fences bigint[], p_locked bigint[])
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return array(
    select j.id
      from pawl.job as j
      join unnest(p_ids, p_fences) as g (id, fence) on g.id = j.id
     where j.id = any (array(select unnest(p_ids)))
       and j.id <> all (p_locked)
       and j.status = 'processing'
       and j.fence = g.fence);
end
$$;

-- job_hold_many is job_hold for up to 500 jobs, in the order of their ids. It does not raise P4020:
-- do the work of the held ones, and finish exactly those. It waits for rows that another
-- transaction has locked, 2 s at most in all. The example is under job_finish_many.
--
-- Outcomes:
--   held    Locked until this transaction ends.
--   stale   This attempt no longer holds the job: drop it.
--   locked  Another transaction has kept the row locked for that long. The state is not known yet.
--
-- Errors:
--   P4004  The arrays.
create or replace function pawl_v1.job_hold_many(p_ids bigint[], p_fences bigint[])
returns table (id bigint, outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_locked bigint[];
  v_fences bigint[]; -- of v_locked; null where the job is not processing
  v_rest   bigint[];
begin
  perform pawl_v1._check_batch('ids', coalesce(cardinality(p_ids), 0), 500, coalesce(cardinality(p_fences), 0));
  for v_try in 1..2 loop
    with locked as (
      select j.id, j.status, j.fence
        from pawl.job as j
       where j.id = any (array(select unnest(p_ids))) -- see job_claim
       order by j.id
         for update skip locked
    )
    select coalesce(array_agg(l.id), '{}'), array_agg(case l.status when 'processing' then l.fence end)
      into v_locked, v_fences
      from locked as l;
    exit when v_try = 2 or cardinality(v_locked) >= cardinality(p_ids);
    v_rest := pawl_v1._jobs_elsewhere(p_ids, p_fences, v_locked);
    exit when cardinality(v_rest) = 0;
    perform pawl_v1._jobs_wait(v_rest, 2000);
  end loop;
  return query
  select g.id, pawl_v1._holding(g.id, l.id is not null, coalesce(l.fence = g.fence, false)), '{}'::jsonb
    from unnest(p_ids, p_fences) as g (id, fence)
    left join unnest(v_locked, v_fences) as l (id, fence) on l.id = g.id
   order by g.id;
end
$$;

-- _locked_or_stale classifies a job whose row this transaction could not lock.
create or replace function pawl_v1._locked_or_stale(p_id bigint)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform from pawl.job as j where j.id = p_id;
  return case when found then 'locked' else 'stale' end;
end
$$;

create or replace function pawl_v1._holding(p_id bigint, p_locked boolean, p_ours boolean)
returns text
language sql
return case
  when p_locked then case when p_ours then 'held' else 'stale' end
  else pawl_v1._locked_or_stale(p_id)
end;

-- job_finish_many is job_finish for up to 500 jobs, in the order of their ids: all or none. Call it
-- in the transaction that did the work. For jobs in lanes, the detail of the first row is that of
-- job_finish for all of them.
--
-- Outcomes:
--   finished  The job ends once this transaction commits.
--   stale     Only with skip_stale: this attempt no longer holds the job.
--   locked    Only with skip_stale: another transaction has the row. Try again.
--
-- Errors:
--   P4020  One of them is not held with that fence.
--   55P03  Another transaction has had the row of one of them for 2 s. Restart.
--   P4004  The arrays.
--
-- Options:
--   skip_stale  (boolean) For work that has already committed elsewhere. Neither P4020 nor 55P03 is
--               raised, the other jobs are finished, and the wait is at most 250 ms.
create or replace function pawl_v1.job_finish_many(p_ids bigint[], p_fences bigint[], p_options jsonb default '{}')
returns table (id bigint, outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_strict   boolean := not coalesce((p_options ->> 'skip_stale')::boolean, false);
  v_todo     bigint[] := p_ids;
  v_locked   bigint[];
  v_gone     bigint[];
  v_fences   bigint[]; -- of v_gone
  v_lanes    bigint[];
  v_kept     bigint[]; -- of v_locked, those whose queue has an archive
  v_before   record;   -- locked and finished by the first try, if there is a second
  v_lost     record;
  v_said     text[] := '{}';
  v_ids      bigint[] := '{}';
begin
  perform pawl_v1._check_options(p_options, '{skip_stale}'),
          pawl_v1._check_batch('ids', coalesce(cardinality(p_ids), 0), 500, coalesce(cardinality(p_fences), 0));
  for v_try in 1..2 loop
    with locked as (
      select j.id, j.status, j.fence, j.queue = any (array(select q.name from pawl.queue as q where q.archive)) as kept
        from pawl.job as j
       where j.id = any (array(select unnest(v_todo))) -- see job_claim
       order by j.id
         for update skip locked
    ), gone as (
      delete from pawl.job as j
       where j.id = any (array( -- no join: the planner may read the whole table for one
               select l.id
                 from locked as l
                 join unnest(p_ids, p_fences) as g (id, fence) on g.id = l.id
                where l.status = 'processing'
                  and not l.kept
                  and l.fence = g.fence))
      returning j.id, j.fence, j.lane_id
    )
    select array(select l.id from locked as l),
           array(select l.id from locked as l where l.kept),
           array_agg(d.id order by d.id),
           array_agg(d.fence order by d.id),
           array_agg(d.lane_id) filter (where d.lane_id is not null)
      into v_locked, v_kept, v_gone, v_fences, v_lanes
      from gone as d;

    if cardinality(v_kept) > 0 then
      select k.gone, k.fences, k.lanes
        into v_gone, v_fences, v_lanes
        from pawl_v1._archive_held(v_kept, p_ids, p_fences, v_gone, v_fences, v_lanes) as k;
    end if;
    if v_try = 2 then
      v_locked := v_before.locked || v_locked;
      v_gone := v_before.gone || v_gone;
      v_fences := v_before.fences || v_fences;
      v_lanes := v_before.lanes || v_lanes;
      exit;
    end if;
    exit when cardinality(v_gone) = cardinality(p_ids); -- the usual case
    v_todo := pawl_v1._jobs_elsewhere(p_ids, p_fences, v_locked);
    exit when cardinality(v_todo) = 0;
    select v_locked as locked, v_gone as gone, v_fences as fences, v_lanes as lanes
      into v_before;
    perform pawl_v1._jobs_wait(v_todo, case when v_strict then 2000 else 250 end);
  end loop;
  if cardinality(v_gone) = cardinality(p_ids) then
    return query
    select d.id, 'finished', case when d.n = 1 and v_lanes is not null then pawl_v1._lanes_free(v_lanes) else '{}' end
      from unnest(v_gone) with ordinality as d (id, n)
     order by d.n;
    return;
  end if;
  for v_lost in
    select g.id,
           g.fence,
           case when d.id is not null then 'finished' else pawl_v1._holding(g.id, g.id = any (v_locked), false) end as outcome
      from unnest(p_ids, p_fences) as g (id, fence)
      left join unnest(v_gone, v_fences) as d (id, fence) on d.id = g.id and d.fence = g.fence
     order by g.id
  loop
    if v_strict and v_lost.outcome = 'locked' then
      raise exception 'job % is locked by another transaction', v_lost.id
        using errcode = '55P03', hint = 'nothing is known yet; restart the transaction';
    elsif v_strict and v_lost.outcome <> 'finished' then
      perform pawl_v1._raise_fence_lost(v_lost.id, v_lost.fence);
    end if;
    v_ids := v_ids || v_lost.id;
    v_said := v_said || v_lost.outcome;
  end loop;
  return query
  select e.id, e.outcome,
         case when e.n = 1 and v_lanes is not null then pawl_v1._lanes_free(v_lanes) else '{}' end
    from unnest(v_ids, v_said) with ordinality as e (id, outcome, n)
   order by e.n;
end
$$;

-- job_fail ends an attempt with an error. p_error is {"error": text, "code": text}. The last 10
-- errors are kept, each cut to 4,000 characters.
--
-- A job in a lane keeps its turn while it is retried or waits for a verdict. As a dead letter it
-- follows the lane's policy: see lane_policy. As 'cancelled' it gives up its turn. If the next job
-- gets the turn, detail is that of job_finish.
--
-- Outcomes:
--   retry        The job is pending again, due at available_at.
--   dead_letter  No attempt is left, or 'final' was true. The payload and the errors stay.
--   cancelled    'cancel' was true. The job is not retried, and it is no dead letter. The payload
--                and the errors stay.
--   unknown      'unknown' was true, and a step of the job is unknown: it waits for a verdict
--                (step_settle).
--
-- Errors:
--   P4020, 55P03  As of job_hold.
--   P4004         An argument.
--
-- Options:
--   retry_in_ms    (0 to a year, default 1000) The earliest next attempt, from now.
--   final          (boolean) Make the job a dead letter.
--   cancel         (boolean) Cancel the job. It goes before 'final'.
--   unknown        (boolean) Wait for a verdict. It goes before both, unless the step was settled
--                  meanwhile.
--   wait_limit_ms  (1 to a year, default none) The job waits for what p_error says. The attempt is
--                  not charged, and the error is recorded once. If its last error is the same and
--                  older than the limit, the job becomes a dead letter. It is due at the limit at
--                  the latest.
create or replace function pawl_v1.job_fail(p_id bigint, p_fence bigint, p_error jsonb, p_options jsonb default '{}')
returns table (outcome text, available_at timestamptz, attempts int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_job     pawl.job;
  v_unknown boolean := false;
  v_error   jsonb := p_error;
  v_limit   interval := pawl_v1._int_option(p_options, 'wait_limit_ms', null, 1, 31536000000) * interval '1 millisecond';
  v_since   timestamptz;
  v_waits   boolean; -- null: it does not wait. False: it has waited for too long.
begin
  perform pawl_v1._check_options(p_options, '{retry_in_ms,final,cancel,unknown,wait_limit_ms}');
  if v_limit is not null then
    -- Another error in between, also that of an earlier limit, begins another wait.
    select (j.last_errors -> -1 ->> 'at')::timestamptz
      into v_since
      from pawl.job as j
     where j.id = p_id and j.fence = p_fence
       and j.last_errors -> -1 ->> 'error' = left(p_error ->> 'error', 4000);
    v_waits := coalesce(v_since > clock_timestamp() - v_limit, true);
    if not v_waits then
      v_error := p_error || jsonb_build_object('error', format('%s: since %s, longer than %s s', left(p_error ->> 'error', 3900),
                   to_char(v_since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), trunc(extract(epoch from v_limit), 3)));
    end if;
  end if;
  if (p_options ->> 'unknown')::boolean then
    -- A verdict may be arriving now. Lock the job's row first, as step_settle does.
    perform from pawl.job as j where j.id = p_id for update;
    perform from pawl.step as e where e.job_id = p_id and e.status = 'unknown' for update;
    v_unknown := found;
  end if;
  update pawl.job as j
     set status = case
           when v_unknown then 'unknown'
           when coalesce((p_options ->> 'cancel')::boolean, false) then 'cancelled'
           when v_waits then 'pending'
           when coalesce((p_options ->> 'final')::boolean, false) or not v_waits or j.attempts >= j.max_attempts then 'dead_letter'
           else 'pending'
         end,
         lane_head = j.lane_head and (v_unknown or not coalesce((p_options ->> 'cancel')::boolean, false)),
         claimed_by = null,
         lease_expires_at = null,
         attempts = case when v_waits is null then j.attempts else greatest(j.attempts - 1, 0) end,
         available_at = least(clock_timestamp()
           + pawl_v1._int_option(p_options, 'retry_in_ms', 1000, 0, 31536000000) * interval '1 millisecond',
           case when v_waits then coalesce(v_since, clock_timestamp()) + v_limit end),
         last_errors = case
           when v_waits and v_since is not null then j.last_errors
           else pawl_v1._push_error(j.last_errors, v_error, j.attempts, j.fence, j.claimed_by)
         end
   where j.id = p_id
     and j.status = 'processing'
     and j.fence = p_fence
  returning j.*
       into v_job;
  if not found then
    perform pawl_v1._raise_fence_lost(p_id, p_fence);
  end if;
  return query
  select case v_job.status when 'pending' then 'retry' else v_job.status end,
         v_job.available_at, v_job.attempts::int,
         case when v_job.lane_id is null or v_job.status in ('pending', 'unknown') then '{}' else pawl_v1._lanes_leave(array[p_id]) end;
end
$$;

-- job_release gives a claimed job back without charging the attempt. Use it on shutdown, after a
-- database outage, for a later try, or when the reply to COMMIT was lost. In the last case the
-- outcome says whether the transaction committed.
--
-- Outcomes:
--   released  The job was yours and is pending again.
--   not_held  Nothing changed: it finished, was taken over, or has ended.
--
-- Errors:
--   55P03  The old transaction still has the row after 2 s. Ask again.
--   P4004  An argument.
--
-- Options:
--   retry_in_ms  (0 to a year, default 0) The earliest next attempt, from now. A job that was
--                claimed early keeps its due time.
create or replace function pawl_v1.job_release(p_id bigint, p_fence bigint, p_options jsonb default '{}')
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  perform pawl_v1._check_options(p_options, '{retry_in_ms}');
  update pawl.job as j
     set status = 'pending',
         claimed_by = null,
         lease_expires_at = null,
         attempts = greatest(j.attempts - 1, 0),
         available_at = greatest(j.available_at, clock_timestamp()
           + pawl_v1._int_option(p_options, 'retry_in_ms', 0, 0, 31536000000) * interval '1 millisecond')
   where j.id = p_id
     and j.status = 'processing'
     and j.fence = p_fence;
  if found then
    return query
    select 'released', '{}'::jsonb;
    return;
  end if;
  return query
  select 'not_held', case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unreplicated() end;
end
$$;

-- A job that ends in the transaction that does its work. The end comes first:
--
--   begin → job_open: the row is deleted → your rows → job_close: same transaction? → commit
--                                            └── error: rollback restores the row; then job_fail
--
-- An effect cannot commit without the end of its job, even if the code in between ends the
-- transaction. Call job_fail in a separate transaction.

-- job_open checks the fence and ends a claimed job. Call it as the first statement of the
-- transaction that does the work, and job_close as the last. Other transactions see the job
-- processing and locked until you commit. A rollback brings it back, held by this attempt. Then
-- call job_fail in its own transaction.
--
-- Pass the returned outcome, xact and lane to job_close. Read the outcome each time, because an
-- operator may give the queue an archive at any time. If the transaction is idle for p_idle_ms
-- milliseconds, the server ends it. Null keeps the limit of the session.
--
-- Outcomes:
--   ended  The row is deleted.
--   kept   The row is locked and stays until job_close: p_keep is true, or the queue has an archive
--          (queue_set). Set a savepoint after the call. If your code ends the transaction, rolling
--          back to it fails, and you must not retry the job.
--
-- Errors:
--   P4020, 55P03  As of job_hold.
create or replace function pawl_v1.job_open(p_id bigint, p_fence bigint, p_idle_ms int default null, p_keep boolean default false)
returns table (outcome text, xact text, lane bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_idle_ms is not null then
    perform set_config('idle_in_transaction_session_timeout', p_idle_ms::text, true);
  end if;
  outcome := 'ended';
  detail := '{}';
  for v_try in 1..2 loop
    if not p_keep then
      delete from pawl.job as j
       where j.id = (
               select l.id
                 from pawl.job as l
                where l.id = p_id
                  and l.status = 'processing'
                  and l.fence = p_fence
                  for update skip locked)
         and j.queue <> all (array(select q.name from pawl.queue as q where q.archive))
      returning j.lane_id
           into lane;
      if found then
        xact := pg_current_xact_id();
        return next;
        return;
      end if;
    end if;
    exit when v_try = 2;
    perform pawl_v1.job_hold(p_id, p_fence); -- this transaction has locked the row now
    exit when p_keep;
  end loop;
  outcome := 'kept';
  xact := pg_current_xact_id()::text || ' kept';
  return next;
end
$$;

-- job_close completes job_open. Call it as the last statement before COMMIT. It checks that the
-- transaction is still the one of job_open, and gives the next job of the lane its turn. p_outcome,
-- p_xact and p_lane are the values that job_open returned.
--
-- Outcomes:
--   finished  detail as of job_finish.
--
-- Errors:
--   25000  Your code has ended the transaction, and this is another one. Its earlier writes may be
--          durable. Roll back; job_release says whether the job ended with it. Or your code has
--          rolled back to a savepoint from before job_open: then the job has not ended.
--   P4020  Only after 'kept': your code has ended the job by itself.
--   P4004  p_outcome is not what job_open returned. After 'kept', with 'ended', your rows would
--          commit and the job would run again.
create or replace function pawl_v1.job_close(p_id bigint, p_fence bigint, p_outcome text, p_xact text, p_lane bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_xact text := pg_current_xact_id_if_assigned();
begin
  if (p_xact in (v_xact, v_xact || ' kept')) is not true then
    raise exception 'the transaction in which job % was opened has ended', p_id
      using errcode = '25000', hint = 'code that is lent the transaction of a job must not commit or roll back';
  end if;
  if (p_outcome = case p_xact when v_xact then 'ended' else 'kept' end) is not true then
    raise exception 'job_open did not answer % for job %', coalesce(p_outcome, 'null'), p_id
      using errcode = 'P4004', hint = 'pass outcome, xact and lane as job_open answered them';
  end if;
  if p_outcome = 'kept' then
    return query
    select f.outcome, f.detail from pawl_v1.job_finish(p_id, p_fence) as f;
    return;
  end if;
  perform
     from pawl.job as j
    where j.id = p_id;
  if found then
    raise exception 'the end of job % was rolled back to a savepoint', p_id
      using errcode = '25000', hint = 'call job_open before any savepoint that you roll back to';
  end if;
  return query
  select 'finished', case when p_lane is null then '{}' else pawl_v1._lanes_free(array[p_lane]) end;
end
$$;

-- Lanes: jobs of one lane of a queue run one at a time, in the order in which they were enqueued.
--
--     enqueue ──▶ waiting ── promoted ──▶ pending ⇄ processing ──▶ finished: the next is promoted
--        │                                   ▲          └──▶ dead_letter
--        └── the lane is empty ──────────────┘               policy block: the lane stops
--                                                        park, skip: the next is promoted
--
-- The job with lane_head is the head. Three rules, checked by docs/internals/model:
--   1. First the head's row goes (deleted, or lane_head = false). Then the lane's row is locked,
--      without waiting: a long transaction that enqueued into the lane must not delay a finish.
--   2. A transaction that adds or promotes a job updates the lane's row before it reads the jobs.
--      With a lock alone, an old snapshot (REPEATABLE READ) would not get 40001. It could then put
--      a job behind one that is gone.
--   3. Lanes that had to be skipped are returned in detail. The caller calls lane_promote for each
--      after its commit. If it dies first, lane_sweep finds the lane.

-- _lane_is_open reports whether a lane has a head. Update the lane's row first.
create or replace function pawl_v1._lane_is_open(p_lane bigint)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return exists (select from pawl.job as j where j.lane_id = p_lane and j.lane_head)
      or exists (select from pawl.job as j where j.lane_id = p_lane and j.status = 'waiting');
end
$$;

-- _lane_of returns the lane and position of a claimed job.
create or replace function pawl_v1._lane_of(p_lane bigint, p_position bigint)
returns jsonb
language sql
stable
return (select jsonb_build_object('lane', l.name, 'position', p_position) from pawl.lane as l where l.id = p_lane);

create or replace function pawl_v1._refuse_lane_policy(p_policy text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception 'a lane''s policy is block, park or skip, not %', coalesce(p_policy, 'null')
    using errcode = 'P4004';
end
$$;

create or replace function pawl_v1._check_lane_policy(p_policy text)
returns void
language sql
immutable
return case when p_policy in ('block', 'park', 'skip') then null else pawl_v1._refuse_lane_policy(p_policy) end;

-- _lanes_enter locks the lanes of a call in name order, creates missing ones, updates their rows
-- and returns their ids; null where there is no name. It waits for locked ones.
create or replace function pawl_v1._lanes_enter(p_queues text[], p_names text[], p_options jsonb)
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_policy text := coalesce(p_options ->> 'lane_policy', 'block');
  v_ids    bigint[];
  v_lost   boolean;
begin
  perform pawl_v1._check_lane_policy(v_policy), pawl_v1._check_scope('queue', r.queue), pawl_v1._check_scope('lane', r.name)
     from unnest(p_queues, p_names) as r (queue, name)
    where r.name is not null;
  for v_try in 1..3 loop
    insert into pawl.lane as l (queue, name, policy)
    select distinct r.queue collate "C", r.name collate "C", v_policy
      from unnest(p_queues, p_names) as r (queue, name)
     where r.name is not null
       and not exists (select from pawl.lane as l where l.queue = r.queue and l.name = r.name)
     order by 1, 2
    on conflict do nothing;

    perform
       from pawl.lane as l
      where (l.queue, l.name) in (select r.queue, r.name from unnest(p_queues, p_names) as r (queue, name) where r.name is not null)
      order by l.queue, l.name
        for no key update;
    update pawl.lane as l
       set ver = l.ver + 1
     where (l.queue, l.name) in (select r.queue, r.name from unnest(p_queues, p_names) as r (queue, name) where r.name is not null);

    select array_agg(l.id order by r.n), coalesce(bool_or(r.name is not null and l.id is null), false)
      into v_ids, v_lost
      from unnest(p_queues, p_names) with ordinality as r (queue, name, n)
      left join pawl.lane as l on l.queue = r.queue and l.name = r.name;
    if not v_lost then
      return v_ids;
    end if;
  end loop;
  raise exception 'some lanes keep appearing and disappearing'
    using errcode = '40001', hint = 'restart the transaction';
end
$$;

-- _lanes_advance promotes the first waiting job of each lane that has no head. The caller has
-- updated the lanes' rows in an earlier statement. It does not wait for a job whose row is locked,
-- and promotes no other in its place. stuck: lanes where a job waits and none was promoted.
create or replace function pawl_v1._lanes_advance(p_lanes bigint[], out promoted int, out stuck bigint[])
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_next  bigint[]; -- the first waiting job of each lane
  v_lanes bigint[]; -- of v_next
  v_freed bigint[];
begin
  select array_agg(n.id), array_agg(l.id)
    into v_next, v_lanes
    from unnest(p_lanes) as l (id)
   cross join lateral (
          select j.id
            from pawl.job as j
           where j.lane_id = l.id
             and j.status = 'waiting'
             and not exists (select from pawl.job as h where h.lane_id = l.id and h.lane_head)
           order by j.position
           limit 1) as n;
  promoted := 0;
  stuck := '{}';
  if v_next is null then
    return;
  end if;
  with locked as (
    select j.id, j.status
      from pawl.job as j
     where j.id = any (array(select unnest(v_next))) -- see job_claim
     order by j.id
       for update skip locked
  ), freed as (
    update pawl.job as j
       set status = 'pending',
           lane_head = true,
           available_at = greatest(j.available_at, clock_timestamp())
     where j.id = any (array(select k.id from locked as k where k.status = 'waiting'))
    returning j.lane_id
  )
  select array_agg(f.lane_id)
    into v_freed
    from freed as f;
  promoted := coalesce(cardinality(v_freed), 0);
  if promoted < cardinality(v_next) then
    stuck := array(select s.id from unnest(v_lanes) as s (id) where s.id <> all (coalesce(v_freed, '{}')));
  end if;
end
$$;

-- _lanes_free promotes the successors after the heads of these lanes have ended in this
-- transaction. It never waits. detail.promoted: number of jobs that may be claimed now.
-- detail.skipped: ids of locked lanes; call lane_promote for each after your commit.
create or replace function pawl_v1._lanes_free(p_lanes bigint[])
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_locked   bigint[];
  v_advanced record;
  v_skipped  bigint[];
begin
  v_locked := array(
    select l.id
      from pawl.lane as l
     where l.id = any (p_lanes)
     order by l.id
       for no key update skip locked);
  update pawl.lane as l
     set ver = l.ver + 1
   where l.id = any (v_locked);
  select a.promoted, a.stuck
    into v_advanced
    from pawl_v1._lanes_advance(v_locked) as a;
  v_skipped := array(
    select distinct s.id
      from unnest(p_lanes) as s (id)
     where s.id <> all (v_locked)
        or s.id = any (v_advanced.stuck)
     order by s.id);
  return case when v_advanced.promoted > 0 then jsonb_build_object('promoted', v_advanced.promoted) else '{}' end
      || case when cardinality(v_skipped) > 0 then jsonb_build_object('skipped', to_jsonb(v_skipped)) else '{}' end;
end
$$;

-- _lane_freed is _lanes_free for calls by operators and applications: it also wakes a worker for
-- the next job. A worker that ends a head claims the next job itself.
create or replace function pawl_v1._lane_freed(p_lane bigint, p_queue text)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_detail jsonb := pawl_v1._lanes_free(array[p_lane]);
begin
  if v_detail ? 'promoted' then
    perform pawl_v1._wake(array[p_queue]);
  end if;
  return v_detail;
end
$$;

-- _lanes_leave is called after jobs became dead letters or were cancelled in this transaction. A
-- dead letter stays head only under policy block; the other lanes go on. detail as of _lanes_free.
create or replace function pawl_v1._lanes_leave(p_ids bigint[])
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_lanes bigint[];
begin
  with ended as (
    update pawl.job as j
       set lane_head = j.lane_head and l.policy = 'block'
      from pawl.lane as l
     where j.id = any (p_ids)
       and l.id = j.lane_id
    returning j.lane_id, j.lane_head
  )
  select coalesce(array_agg(e.lane_id) filter (where not e.lane_head), '{}')
    into v_lanes
    from ended as e;
  return pawl_v1._lanes_free(v_lanes);
end
$$;

-- lane_promote gives the turn to the first waiting job of a lane, if no job has it. Call it in its
-- own transaction for each lane that detail.skipped of another call names. It is safe at any time.
--
-- Outcomes:
--   promoted  A job may be claimed.
--   idle      A job has the turn, or none waits.
--   absent    There is no such lane.
--
-- Errors:
--   55P03  The lane, or the job, has been locked for more than 250 ms. Leave it to lane_sweep.
create or replace function pawl_v1.lane_promote(p_lane bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
as $$
declare
  v_advanced record;
begin
  update pawl.lane as l
     set ver = l.ver + 1
   where l.id = p_lane;
  if not found then
    return query
    select 'absent', '{}'::jsonb;
    return;
  end if;
  select a.promoted, a.stuck
    into v_advanced
    from pawl_v1._lanes_advance(array[p_lane]) as a;
  if cardinality(v_advanced.stuck) > 0 then
    raise exception 'the first job of lane % is locked', p_lane
      using errcode = '55P03', hint = 'lane_sweep promotes it when it is free';
  end if;
  return query
  select case when v_advanced.promoted > 0 then 'promoted' else 'idle' end, '{}'::jsonb;
end
$$;

-- lane_sweep gives the turn in every lane in which jobs wait and none has it. It is the backstop
-- for processes that died before they called lane_promote. Workers call it every second, or every
-- 20 times its own length. It looks at up to p_limit lanes (1 to 100,000) in which jobs wait, and
-- never waits for a lock. A lane takes 14 µs on the machine of docs/decisions/0012-lanes.md.
--
-- Outcomes:
--   swept  The column promoted is the number of jobs that may be claimed now. detail.next is the
--          value of 'after' for the next call; it is absent after the last lane.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   after  (id of a lane, default none) Look only at higher ids.
create or replace function pawl_v1.lane_sweep(p_limit int default 10000, p_options jsonb default '{}')
returns table (outcome text, promoted int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_lane   bigint := pawl_v1._int_option(p_options, 'after', 0, 0, 9223372036854775807);
  v_frozen bigint[] := '{}';
  v_freed  jsonb := '{}';
begin
  perform pawl_v1._check_options(p_options, '{after}');
  perform pawl_v1._check_int('limit', p_limit, 1, 100000);
  for v_looked in 1..coalesce(p_limit, 10000) loop
    -- One entry of index job_wait per lane, however many jobs wait.
    select j.lane_id
      into v_lane
      from pawl.job as j
     where j.lane_id > v_lane
       and j.status = 'waiting'
     order by j.lane_id
     limit 1;
    exit when not found;
    perform from pawl.job as j where j.lane_id = v_lane and j.lane_head;
    if not found then
      v_frozen := v_frozen || v_lane;
    end if;
  end loop;
  if cardinality(v_frozen) > 0 then
    v_freed := pawl_v1._lanes_free(v_frozen);
  end if;
  return query
  select 'swept', coalesce((v_freed ->> 'promoted')::int, 0), jsonb_strip_nulls(jsonb_build_object('next', v_lane));
end
$$;

-- lane_purge deletes lanes that hold no job at all, not even a dead or cancelled one, unless their
-- policy was set by lane_policy. The order is not lost, because positions come from one sequence
-- for all lanes. Workers call it once a minute. It looks at up to p_limit lanes (1 to 100,000) and
-- never waits.
--
-- Outcomes:
--   purged  The column purged is the number of lanes. detail.next as of lane_sweep.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   after  (id of a lane, default none) Look only at higher ids.
create or replace function pawl_v1.lane_purge(p_limit int default 10000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_after  bigint := pawl_v1._int_option(p_options, 'after', 0, 0, 9223372036854775807);
  v_looked bigint[];
  v_idle   bigint[];
  v_purged int;
begin
  perform pawl_v1._check_options(p_options, '{after}');
  perform pawl_v1._check_int('limit', p_limit, 1, 100000);
  v_looked := array(
    select l.id
      from pawl.lane as l
     where l.id > v_after
     order by l.id
     limit coalesce(p_limit, 10000));
  v_idle := array(
    select l.id
      from pawl.lane as l
     where l.id = any (v_looked)
       and not l.kept
       and not pawl_v1._lane_is_used(l.id)
     order by l.id
       for update skip locked);
  -- Check again under the lock: a job may have come in between.
  delete from pawl.lane as l
   where l.id = any (v_idle)
     and not pawl_v1._lane_is_used(l.id);
  get diagnostics v_purged = row_count;
  return query
  select 'purged', v_purged,
         case when cardinality(v_looked) = coalesce(p_limit, 10000)
           then jsonb_build_object('next', v_looked[cardinality(v_looked)])
           else '{}'
         end;
end
$$;

create or replace function pawl_v1._lane_is_used(p_lane bigint)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return pawl_v1._lane_is_open(p_lane)
      or exists (
           select from pawl.job as j
            where j.lane_id = p_lane
              and j.lane_id is not null
              and j.status in ('dead_letter', 'cancelled')
              and not j.lane_head);
end
$$;

-- An exchange finishes jobs and claims others in one call and one commit.

-- job_exchange finishes up to 500 jobs, as job_finish_many with skip_stale. It then claims due jobs
-- of a queue, as job_claim, with the same commit. It claims up to p_limit (0 to 500) jobs and one
-- more for each that it finished, 500 at most. A job whose predecessor in its lane has just
-- finished may be among them. It is for handlers that work without a transaction: start no handler
-- before the answer has arrived.
--
-- If the reply is lost, ask for the finishes again with job_finish_many: those that ended are
-- 'stale'. The worker holds the jobs of the lost claim without knowing their ids. worker_leave
-- gives them back.
--
-- Outcomes:
--   ended          The first row, once. detail.finished is the number that ended; else detail as of
--                  job_finish_many.
--   stale, locked  The job 'id' was not finished, as of job_finish_many.
--   lease_lost     The worker's lease has ended, or ends within 100 ms. No job was claimed, and the
--                  finishes are valid. Register again.
--   claimed        A job, with the columns and the detail of job_claim.
--
-- Errors:
--   P4004  An argument. No job was finished or claimed.
--
-- Options:
--   kinds, crashed, since
--             As of job_claim.
create or replace function pawl_v1.job_exchange(
  p_ids     bigint[],
  p_fences  bigint[],
  p_queue   text,
  p_worker  bigint,
  p_limit   int,
  p_options jsonb default '{}'
)
returns table (
  outcome text, id bigint, fence bigint, kind text, payload bytea, headers jsonb, attempts int, max_attempts int, crashes int,
  priority int, created_at timestamptz, available_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_until    timestamptz; -- of the lease
  v_finished int := 0;
  v_freed    jsonb := '{}';
  v_failed   bigint[];
  v_why      text[];
begin
  perform pawl_v1._check_options(p_options, '{kinds,crashed,since}');
  if p_limit is null or p_limit not between 0 and 500 then
    raise exception 'limit must lie between 0 and 500, it is %', coalesce(p_limit::text, 'null')
      using errcode = 'P4004';
  end if;
  -- Lock order: the worker before its jobs.
  select w.seen_at + w.lease
    into v_until
    from pawl.worker as w
   where w.id = p_worker
     for key share;
  if cardinality(p_ids) > 0 then
    select count(*) filter (where f.outcome = 'finished'),
           (array_agg(f.detail) filter (where f.detail <> '{}'))[1],
           array_agg(f.id) filter (where f.outcome <> 'finished'),
           array_agg(f.outcome) filter (where f.outcome <> 'finished')
      into v_finished, v_freed, v_failed, v_why
      from pawl_v1.job_finish_many(p_ids, p_fences, '{"skip_stale": true}') as f;
  end if;
  outcome := 'ended';
  detail := coalesce(v_freed, '{}') || jsonb_build_object('finished', v_finished);
  return next;
  detail := '{}';
  for v_n in 1..coalesce(cardinality(v_failed), 0) loop
    outcome := v_why[v_n];
    id := v_failed[v_n];
    return next;
  end loop;
  if (v_until > clock_timestamp() + interval '100 ms') is not true then
    outcome := 'lease_lost';
    id := null;
    return next;
    return;
  end if;
  if p_limit + v_finished > 0 then
    return query
    select 'claimed', c.*
      from pawl_v1.job_claim(p_queue, p_worker, least(p_limit + v_finished, 500), p_options) as c;
  end if;
end
$$;

-- Batches: the holder of a lane's head also works on the jobs that wait behind it, in order. The
-- members stay 'waiting': only the head is held, and its fence guards all of them.

-- lane_batch returns the jobs that wait behind heads that you hold (up to 500), in the order in
-- which they would get the turn: up to p_limit a lane (1 to 1000). They stay 'waiting', and no
-- other worker can take them while you hold the head. Work on the head and then on its batch, in
-- order. End the jobs that are done with lane_finish. The column head is the job whose fence guards
-- the row's job. detail has 'lane' and 'position'.
--
-- A batch ends before the first job that is not due, was tried before or is of another kind. A head
-- has no batch if it was tried before, or in a queue that is paused or drains. The same holds for
-- jobs of a batch whose process died. The call never waits. There are no options.
--
-- Errors:
--   P4004  An argument.
create or replace function pawl_v1.lane_batch(p_ids bigint[], p_fences bigint[], p_limit int default 100, p_options jsonb default '{}')
returns table (
  head bigint, id bigint, kind text, payload bytea, headers jsonb, max_attempts int, created_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_heads bigint[];
  v_lanes bigint[]; -- of v_heads, like the next two
  v_names text[];
  v_kinds text[];
begin
  perform pawl_v1._check_options(p_options, '{}'),
          pawl_v1._check_batch('ids', coalesce(cardinality(p_ids), 0), 500, coalesce(cardinality(p_fences), 0)),
          pawl_v1._check_int('limit', p_limit, 1, 1000);
  -- A test of lane_head in WHERE would let the planner read the index of all heads. IS TRUE makes
  -- the fence test a hash lookup. Else it is a join of each head with each id.
  select array_agg(h.id) filter (where h.lane_head), array_agg(h.lane_id) filter (where h.lane_head),
         array_agg(h.lane) filter (where h.lane_head), array_agg(h.kind) filter (where h.lane_head)
    into v_heads, v_lanes, v_names, v_kinds
    from (
      -- As a join it would be the outer side.
      select j.id, j.lane_id, j.kind, j.lane_head, (select l.name from pawl.lane as l where l.id = j.lane_id) as lane
        from pawl.job as j
       where j.id = any (array(select unnest(p_ids))) -- see job_claim
         and ((j.id, j.fence) in (select g.id, g.fence from unnest(p_ids, p_fences) as g (id, fence))) is true
         and j.status = 'processing'
         and j.attempts = 1
         and j.crashes = 0
         and coalesce(j.batch_end, 0) >= 0
         and not exists (select from pawl.queue as q where q.name = j.queue and q.mode in ('paused', 'draining'))
       order by j.id
         for no key update skip locked) as h;
  if v_heads is null then
    return;
  end if;
  return query
  with batch as (
    select h.id as head, h.lane, n.*
      from unnest(v_heads, v_lanes, v_names, v_kinds) as h (id, lane_id, lane, kind)
     cross join lateral (
            select w.*, bool_and(w.fits) over (order by w.position) as fit
              from (
                select j.id, j.kind, j.payload, j.headers, j.max_attempts, j.created_at, j.position,
                       j.available_at <= clock_timestamp() and j.attempts = 0 and j.crashes = 0 and j.kind = h.kind
                         and j.batch_end is null as fits
                  from pawl.job as j
                 where j.lane_id = h.lane_id
                   and j.status = 'waiting'
                 order by j.position
                 limit coalesce(p_limit, 100)) as w) as n
     where n.fit
  -- This write makes COMMIT wait for the synchronous standbys: it proves what was read here.
  ), noted as (
    update pawl.job as j
       set batch_end = e.position
      from (select b.head, max(b.position) as position from batch as b group by b.head) as e
     where j.id = any (array(select unnest(v_heads)))
       and j.id = e.head
  )
  select b.head, b.id, b.kind::text, b.payload, b.headers, b.max_attempts::int, b.created_at,
         jsonb_build_object('lane', b.lane, 'position', b.position)
    from batch as b
   order by b.head, b.position;
end
$$;

-- lane_finish finishes heads, and those jobs of their batches that p_members lists (up to 10,000;
-- pass a prefix of each batch), in one transaction. It returns a row per head. The column members
-- is the number of jobs behind it that were finished. There are no options.
--
-- If a head is no longer held, no job behind it is finished. Jobs that an operator has ended are
-- skipped. In each lane it stops before the first that another transaction has locked. After a head
-- that crashed in a batch, the other jobs of that batch run singly.
--
-- Outcomes:
--   finished, stale, locked
--             Of the head, and detail, as of job_finish_many with skip_stale.
--
-- Errors:
--   P4004  An argument.
create or replace function pawl_v1.lane_finish(p_ids bigint[], p_fences bigint[], p_members bigint[], p_options jsonb default '{}')
returns table (id bigint, outcome text, members int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_locked  bigint[]; -- of p_ids: existing rows that no other transaction has locked
  v_held    bigint[]; -- of v_locked: jobs that the caller still holds
  v_fences  bigint[]; -- of v_held
  v_lanes   bigint[]; -- of v_held
  v_turns   bigint[]; -- those of v_lanes whose head is in v_held
  v_alone   bigint[]; -- of v_lanes: lanes where a process died in a batch
  v_ends    bigint[]; -- of v_alone: last position of that batch
  v_members bigint[];
  v_behind  bigint[]; -- lanes of v_members
  v_freed   jsonb := '{}';
begin
  perform pawl_v1._check_options(p_options, '{}'),
          pawl_v1._check_batch('ids', coalesce(cardinality(p_ids), 0), 500, coalesce(cardinality(p_fences), 0)),
          pawl_v1._check_int('members', coalesce(cardinality(p_members), 0), 0, 10000);
  for v_try in 1..2 loop
    select coalesce(array_agg(h.id), '{}'),
           array_agg(h.id) filter (where h.held),
           array_agg(h.fence) filter (where h.held),
           array_agg(h.lane_id) filter (where h.held),
           array_agg(h.lane_id) filter (where h.held and h.lane_head),
           array_agg(h.lane_id) filter (where h.held and h.crashed),
           array_agg(abs(h.batch_end)) filter (where h.held and h.crashed)
      into v_locked, v_held, v_fences, v_lanes, v_turns, v_alone, v_ends
      from (
        select j.id, j.fence, j.lane_id, j.lane_head, j.batch_end, j.batch_end < 0 or j.batch_end > 0 and j.crashes > 0 as crashed,
               j.status = 'processing' and (j.id, j.fence) in (select g.id, g.fence from unnest(p_ids, p_fences) as g (id, fence)) as held
          from pawl.job as j
         where j.id = any (array(select unnest(p_ids))) -- see job_claim
         order by j.id
           for update skip locked) as h;
    exit when v_try = 2 or cardinality(v_held) = cardinality(p_ids);
    perform pawl_v1._jobs_wait(pawl_v1._jobs_elsewhere(p_ids, p_fences, v_locked), 250);
  end loop;
  if v_held is not null then
    if cardinality(p_members) > 0 then
      select m.ids, m.lanes
        into v_members, v_behind
        from pawl_v1._batch_members(v_turns, p_members) as m;
    end if;
    perform pawl_v1._batch_remove(v_held || v_members);
    if v_alone is not null then
      perform pawl_v1._batch_hand_down(v_alone, v_ends);
    end if;
    v_freed := pawl_v1._lanes_free(array_remove(v_lanes, null));
  end if;
  return query
  select g.id,
         case when h.id is null then pawl_v1._holding(g.id, g.id = any (v_locked), false) else 'finished' end,
         coalesce(m.n, 0)::int,
         case row_number() over (order by g.id) when 1 then v_freed else '{}' end
    from unnest(p_ids, p_fences) as g (id, fence)
    left join unnest(v_held, v_fences, v_lanes) as h (id, fence, lane_id) on h.id = g.id and h.fence = g.fence
    left join (select e.lane_id, count(*) as n from unnest(v_behind) as e (lane_id) group by e.lane_id) as m on m.lane_id = h.lane_id
   order by g.id;
end
$$;

-- _batch_members locks those of p_members that wait in these lanes, and returns them with their
-- lanes. Each lane counts up to the first member that another transaction has locked. If it has
-- locked them all, which is usual, it does not search for that one.
create or replace function pawl_v1._batch_members(p_lanes bigint[], p_members bigint[], out ids bigint[], out lanes bigint[])
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_locked bigint[];
begin
  select array_agg(l.id), array_agg(l.lane_id)
    into v_locked, lanes
    from (
      select j.id, j.lane_id
        from pawl.job as j
       where j.id = any (array(select unnest(p_members)))
         and j.status = 'waiting'
         and j.lane_id = any (p_lanes)
       order by j.id
         for update skip locked) as l;
  ids := v_locked;
  if cardinality(ids) = cardinality(p_members) then
    return;
  end if;
  select array_agg(n.id), array_agg(n.lane_id)
    into ids, lanes
    from (
      select j.id, j.lane_id, bool_and(j.id = any (v_locked)) over (partition by j.lane_id order by j.position) as whole
        from pawl.job as j
       where j.id = any (array(select unnest(p_members)))
         and j.status = 'waiting'
         and j.lane_id = any (p_lanes)) as n
   where n.whole;
end
$$;

-- _batch_remove deletes heads and members of their batches, which the caller has locked. In a queue
-- with an archive they are archived, members with one attempt.
create or replace function pawl_v1._batch_remove(p_ids bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_kept bigint[];
begin
  if exists (select from pawl.queue as q where q.archive) then
    v_kept := array(
      select j.id
        from pawl.job as j
       where j.id = any (array(select unnest(p_ids)))
         and j.queue = any (array(select q.name from pawl.queue as q where q.archive)));
  end if;
  if cardinality(v_kept) > 0 then
    update pawl.job as j
       set attempts = 1
     where j.id = any (array(select unnest(v_kept)))
       and j.status = 'waiting';
    perform pawl_v1._archive(v_kept);
  end if;
  delete from pawl.job as j
   where j.id = any (array(select unnest(p_ids)));
end
$$;

-- _batch_hand_down marks the next job of each lane to run singly, up to the last position of the
-- batch in which a process died. Call it after their heads have ended.
create or replace function pawl_v1._batch_hand_down(p_lanes bigint[], p_ends bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_head record;
begin
  for v_head in
    select h.lane_id, h.batch_end
      from unnest(p_lanes, p_ends) as h (lane_id, batch_end)
  loop
    update pawl.job as j
       set batch_end = - v_head.batch_end
     where j.id = (
             select n.id
               from (
                 select w.id, w.position
                   from pawl.job as w
                  where w.lane_id = v_head.lane_id
                    and w.status = 'waiting'
                  order by w.position
                  limit 1) as n
               join pawl.job as l on l.id = n.id
              where n.position <= v_head.batch_end
                for update of l skip locked);
  end loop;
end
$$;

-- The archive: jobs that finished in the last seven days, for queues with option archive
-- (queue_set). Eight plain tables are used in turn by day and emptied by TRUNCATE. There is no DDL
-- and no partition for which a finish could fail or wait.

-- _day returns the number of a day since 1970, in UTC.
create or replace function pawl_v1._day(p_at timestamptz)
returns bigint
language sql
stable
return floor(extract(epoch from p_at) / 86400)::bigint;

-- _job_take deletes jobs and returns them with the columns of an archive table. The columns are
-- listed, because `returns setof pawl.archive_0` would lock that table once per session. A finish
-- would then wait for the sweep that empties it.
create or replace function pawl_v1._job_take(p_ids bigint[], p_at timestamptz)
returns table (
  id bigint, fence bigint, "position" bigint, created_at timestamptz, finished_at timestamptz, priority pawl.priority, attempts pawl.count,
  crashes pawl.count, queue pawl.name, kind pawl.name, lane pawl.name, payload bytea, headers jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  delete from pawl.job as j
   where j.id = any (array(select unnest(p_ids)))
  returning j.id, j.fence, j.position, j.created_at, p_at, j.priority, j.attempts, j.crashes, j.queue, j.kind,
            (select l.name from pawl.lane as l where l.id = j.lane_id), j.payload, j.headers;
end
$$;

-- _archive moves finished jobs into the table of the day. The caller has locked them and checked
-- their fences. Each table has its own statement, so that a finish locks only the table of the day.
create or replace function pawl_v1._archive(p_ids bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_at timestamptz := clock_timestamp();
begin
  case pawl_v1._day(v_at) % 8
    when 0 then
      insert into pawl.archive_0 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 1 then
      insert into pawl.archive_1 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 2 then
      insert into pawl.archive_2 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 3 then
      insert into pawl.archive_3 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 4 then
      insert into pawl.archive_4 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 5 then
      insert into pawl.archive_5 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 6 then
      insert into pawl.archive_6 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 7 then
      insert into pawl.archive_7 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
  end case;
end
$$;

-- _archive_held archives the jobs of p_kept that are still held, for job_finish_many.
create or replace function pawl_v1._archive_held(
  p_kept   bigint[],
  p_ids    bigint[],
  p_fences bigint[],
  inout gone   bigint[],
  inout fences bigint[],
  inout lanes  bigint[]
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held bigint[];
begin
  select array_agg(j.id), gone || array_agg(j.id), fences || array_agg(j.fence), lanes || array_agg(j.lane_id) filter (where j.lane_id is not null)
    into v_held, gone, fences, lanes
    from pawl.job as j
    join unnest(p_ids, p_fences) as g (id, fence) on g.id = j.id
   where j.id = any (array(select unnest(p_kept)))
     and j.status = 'processing'
     and j.fence = g.fence;
  if v_held is null then
    return;
  end if;
  perform pawl_v1._archive(v_held);
  select array_agg(d.id order by d.id), array_agg(d.fence order by d.id)
    into gone, fences
    from unnest(gone, fences) as d (id, fence);
end
$$;

-- _archive_is_old reports whether an archive table has rows, and none from p_edge on. It skips from
-- queue to queue along an index, so its cost does not depend on the table's size.
create or replace function pawl_v1._archive_is_old(p_slot int, p_edge timestamptz)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_old boolean;
begin
  execute format($query$
    with recursive queues as (
      select (select min(a.queue) from pawl.archive_%1$s as a) as queue
       union all
      select (select min(a.queue) from pawl.archive_%1$s as a where a.queue > q.queue)
        from queues as q
       where q.queue is not null
    )
    select bool_and(not exists (select from pawl.archive_%1$s as a where a.queue = q.queue and a.finished_at >= $1))
      from queues as q
     where q.queue is not null $query$, p_slot)
    into v_old
   using p_edge;
  return coalesce(v_old, false);
end
$$;

-- archive_sweep empties, by TRUNCATE, the tables of the archive whose rows are all older than today
-- and the six days before, by UTC. Workers call it once a minute. Without a worker call it
-- yourself, at least once a day, in its own transaction. If it is not called for a day, a table
-- mixes two weeks, and its older rows stay until both are old. It decides by the rows' times, so a
-- clock set back loses no recent row. Two calls at once are safe.
--
-- Outcomes:
--   swept  The column emptied is the number of emptied tables.
--   busy   A transaction has had a table locked for 50 ms. detail.busy has the numbers of the
--          tables. Ask again in a minute. Other transactions wait no longer than that for the
--          sweep.
--
-- Errors:
--   P4004  The transaction is at REPEATABLE READ or above. There the sweep cannot see all rows, and
--          would delete recent ones.
create or replace function pawl_v1.archive_sweep()
returns table (outcome text, emptied int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
  v_today   bigint := pawl_v1._day(clock_timestamp());
  v_edge    timestamptz := to_timestamp((v_today - 6) * 86400);
  v_emptied int := 0;
  v_busy    int[] := '{}';
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'archive_sweep runs at READ COMMITTED, not at %', upper(current_setting('transaction_isolation'))
      using errcode = 'P4004', hint = 'begin isolation level read committed';
  end if;
  for v_slot in 0..7 loop
    continue when v_slot = v_today % 8; -- finishes write to it, and a lock would stop them
    begin
      if pawl_v1._archive_is_old(v_slot, v_edge) then
        execute format('lock table pawl.archive_%s in access exclusive mode', v_slot);
        -- Check again under the lock: a finish may have come in between.
        if pawl_v1._archive_is_old(v_slot, v_edge) then
          execute format('truncate pawl.archive_%s', v_slot);
          v_emptied := v_emptied + 1;
        end if;
      end if;
    exception
      when lock_not_available then
        v_busy := v_busy || v_slot;
    end;
  end loop;
  return query
  select case when cardinality(v_busy) > 0 then 'busy' else 'swept' end, v_emptied,
         case when cardinality(v_busy) > 0 then jsonb_build_object('busy', to_jsonb(v_busy)) else '{}' end;
end
$$;

-- Workers: one row per process incarnation, with the lease of all that it has claimed.

-- worker_register registers one incarnation of a process. p_lease (1 s to 12 h) is how long it may
-- miss heartbeats before its jobs are taken back. The example is under job_claim.
--
-- Errors:
--   P4000, P4004  An argument.
--
-- Options:
--   queues  (array of up to 1,000 names, default none) The queues that it works on, for
--           queue_death.
create or replace function pawl_v1.worker_register(p_name text, p_lease interval default '30 seconds', p_options jsonb default '{}')
returns table (worker_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_queues text[];
begin
  perform pawl_v1._check_options(p_options, '{queues}');
  v_queues := coalesce(pawl_v1._text_array_option(p_options, 'queues'), '{}');
  if cardinality(v_queues) > 1000 then
    raise exception 'a worker may name 1000 queues, these are %', cardinality(v_queues)
      using errcode = 'P4004';
  end if;
  perform pawl_v1._check_scope('queue', q.name)
     from unnest(v_queues) as q (name);
  perform pawl_v1._check_scope('worker name', p_name);
  if p_lease is null or p_lease not between interval '1 second' and interval '12 hours' then
    raise exception 'the lease must lie between 1 second and 12 hours, it is %', p_lease
      using errcode = 'P4004';
  end if;
  return query
  insert into pawl.worker as w (name, lease, queues)
  values (p_name, p_lease, to_jsonb(v_queues))
  returning w.id, '{}'::jsonb;
end
$$;

-- worker_attend takes the worker's presence lock on this session. The server frees it when the
-- session ends, so the death of a process is noticed within seconds, not at the end of its lease.
-- Use a direct connection that is kept for no other work. A pooler in transaction mode would leave
-- the lock with another client's connection.
--
-- From then on a free lock is evidence of death. If the connection is lost, report it in the next
-- worker_heartbeat, connect, and attend again.
--
-- Outcomes:
--   present  The session has the lock.
--   taken    Another session has it: your own old connection, not yet noticed as dead, or a sweep
--            that tests it. Ask again at the next heartbeat.
create or replace function pawl_v1.worker_attend(p_worker bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not pg_try_advisory_lock(1885435757, pawl_v1._presence(p_worker)) then
    return query
    select 'taken', '{}'::jsonb;
    return;
  end if;
  update pawl.worker as w
     set presence = true
   where w.id = p_worker;
  return query
  select 'present', '{}'::jsonb;
end
$$;

-- _presence returns the number of a worker's presence lock. If two live workers share a number (1
-- in 2^31), the presence of one hides the death of the other until its lease ends.
create or replace function pawl_v1._presence(p_worker bigint)
returns int
language sql
immutable
return (p_worker & 2147483647)::int;

-- worker_heartbeat renews the lease of everything the worker holds, by one narrow update. Send it
-- at a third of the lease. With presence, send it every 500 ms, because 1.5 s of silence count as a
-- sign of death. You may set synchronous_commit off for it: losing this write costs a takeover,
-- which the fence makes harmless.
--
-- The column recalled has jobs that were cancelled or recalled under the worker since the last
-- heartbeat. End their handlers. A job that the worker has claimed again since is left out.
-- detail.hidden, true, means that row level security applies to your role and may hide jobs or
-- lanes. Claims then find none and raise no error.
--
-- Outcomes:
--   alive  The lease is renewed.
--   lost   The row is gone: its jobs were taken back. Stop their handlers and register again.
--
-- Errors:
--   55P03  The row was locked for 2 s.
--   P4004  An argument.
--
-- Options:
--   presence  (boolean, default as before, at first false) The process holds its presence lock.
--             Send false when you have lost the lock's connection.
--   report    (object, default as before, at first none) Data for 'pawl doctor', as listed below.
--   told      (array, default none) detail.recalls of the last answer that arrived, or an empty
--             array. A recall is then repeated until a later heartbeat confirms it here. Without
--             'told' each is returned once.
--
-- Members of option report:
--   queues         An array of names.
--   drain_ms       How long the process takes to shut down, at most.
--   watched        Its pool notices commits that stopped waiting for a standby.
--   pooled         A pooler switches sessions under its presence connection, so it has no presence.
--   wakeups        Enqueues wake it: 'on', 'off' by its configuration, or 'none' without a presence
--                  connection.
--   woken, polled  How often it found jobs in a queue that was empty, after a notification and by a
--                  poll.
--   handlers       An object for each kind, with timeout_ms, 'runs' and p99_ms.
create or replace function pawl_v1.worker_heartbeat(p_worker bigint, p_options jsonb default '{}')
returns table (outcome text, recalled bigint[], detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_seen     pawl.worker;
  v_silence  interval := '0';
  v_recalled bigint[];
  v_recalls  bigint[];
begin
  perform pawl_v1._check_options(p_options, '{presence,report,told}');
  if jsonb_typeof(p_options -> 'told') <> 'array' then
    raise exception 'option told must be a JSON array, it is %', jsonb_typeof(p_options -> 'told')
      using errcode = 'P4004';
  end if;
  if jsonb_typeof(p_options -> 'report') <> 'object' then
    raise exception 'option report must be a JSON object, it is %', jsonb_typeof(p_options -> 'report')
      using errcode = 'P4004';
  end if;
  select w.*
    into v_seen
    from pawl.worker as w
   where w.id = p_worker
     for no key update;
  if not found then
    return query
    select 'lost', '{}'::bigint[], '{}'::jsonb;
    return;
  end if;
  if isfinite(v_seen.seen_at) then
    v_silence := clock_timestamp() - v_seen.seen_at;
  end if;
  if v_silence < v_seen.silence and v_seen.silence_at > clock_timestamp() - interval '1 hour' then
    v_silence := v_seen.silence;
  else
    v_seen.silence_at := clock_timestamp();
  end if;
  update pawl.worker as w
     set seen_at = clock_timestamp(),
         presence = coalesce((p_options ->> 'presence')::boolean, w.presence),
         suspected_at = null,
         silence = v_silence,
         silence_at = v_seen.silence_at,
         report = coalesce(p_options -> 'report', w.report)
   where w.id = p_worker;
  if jsonb_array_length(p_options -> 'told') > 0 then
    delete from pawl.recall as r
     where r.worker_id = p_worker
       and p_options -> 'told' @> to_jsonb(r.id);
  end if;
  with open as (
    select r.id, r.job_id, r.fence
      from pawl.recall as r
     where r.worker_id = p_worker
  ), named as (
    select o.job_id, max(o.id) as id
      from open as o
     where not exists (
             select
               from pawl.job as j
              where j.id = o.job_id
                and j.claimed_by = p_worker
                and j.fence > o.fence)
     group by o.job_id
  )
  select coalesce((select array_agg(n.job_id order by n.id) from named as n), '{}'),
         (select array_agg(o.id) from open as o)
    into v_recalled, v_recalls;
  if v_recalls is not null and not p_options ? 'told' then
    delete from pawl.recall as r
     where r.worker_id = p_worker
       and r.id = any (v_recalls);
  end if;
  return query
  select 'alive', v_recalled,
         case when v_recalls is not null and p_options ? 'told' then jsonb_build_object('recalls', v_recalls) else '{}' end
         || case when row_security_active('pawl.job') or row_security_active('pawl.lane') then '{"hidden": true}'::jsonb else '{}' end;
end
$$;

-- worker_leave ends a worker in good order. Its jobs are given back at once, uncharged, also those
-- of a claim whose answer it no longer waits for. Above READ COMMITTED such a claim cannot be seen.
-- Then the row stays, expired, for the next sweep.
--
-- Name in 'abandoned' the jobs whose handlers still run although you have told them to end. These
-- stay with the worker's row, and so do jobs whose transaction is open. The next sweep takes them,
-- counts a crash of each and gives the attempt back. So a job that makes its process stop is a dead
-- letter in the end.
--
-- The column released is the number of jobs that were given back. Jobs claimed without a worker
-- stay.
--
-- Outcomes:
--   left  The worker's row is gone.
--   busy  Jobs are left to the sweep, or there was no such worker.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   abandoned  (array of job ids, default none) Their handlers still run.
create or replace function pawl_v1.worker_leave(p_worker bigint, p_options jsonb default '{}')
returns table (outcome text, released int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_abandoned bigint[];
  v_released  int;
  v_queues    text[];
  v_left      boolean;
begin
  perform pawl_v1._check_options(p_options, '{abandoned}');
  v_abandoned := coalesce(pawl_v1._text_array_option(p_options, 'abandoned')::bigint[], '{}');
  -- Wait for a claim of this worker that may still be running after its client gave up. The next
  -- statement has a new snapshot and sees the claimed jobs. No claim can follow.
  perform from pawl.worker as w where w.id = p_worker for update;
  with held as (
    select j.id
      from pawl.job as j
     where j.claimed_by = p_worker
       and p_worker <> 0 -- claims without a worker belong to no worker
       and j.id <> all (v_abandoned)
     order by j.id
       for update skip locked
  ), released as (
    update pawl.job as j
       set status = 'pending',
           claimed_by = null,
           attempts = greatest(j.attempts - 1, 0),
           available_at = greatest(j.available_at, clock_timestamp())
      from held
     where j.id = held.id
       and j.status = 'processing'
       and j.claimed_by = p_worker
    returning j.queue
  )
  select count(*), array_agg(distinct r.queue)
    into v_released, v_queues
    from released as r;
  if v_released > 0 then
    perform pawl_v1._wake(v_queues);
  end if;
  if current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
    delete from pawl.worker as w
     where w.id = p_worker
       and not exists (select from pawl.job as j where j.claimed_by = w.id);
  else
    -- The snapshot is older than that claim. Leave the row to the next sweep.
    update pawl.worker as w
       set seen_at = '-infinity'
     where w.id = p_worker
       and not exists (select from pawl.job as j where j.claimed_by = w.id);
  end if;
  v_left := found;
  if not v_left then
    update pawl.worker as w
       set seen_at = '-infinity'
     where w.id = p_worker;
  end if;
  return query
  select case when v_left then 'left' else 'busy' end, v_released, '{}'::jsonb;
end
$$;

-- worker_isolate reports that the worker's process runs only one attempt of one job. If the process
-- dies, job_sweep counts the death in crashes_alone too. Call it in its own transaction before a
-- job with crashes above 0 begins. Call it with p_alone false before other work begins beside that
-- job. The mark belongs to one attempt and ends with it. A call that arrives late does not touch
-- the mark of the next one.
--
-- Outcomes:
--   alone    The attempt is marked.
--   company  p_alone was false: the attempt is not marked.
--   lost     The worker has no row, or does not hold that attempt. Do not run it.
--
-- Errors:
--   55P03  The row was locked for 250 ms.
create or replace function pawl_v1.worker_isolate(p_worker bigint, p_job bigint, p_fence bigint, p_alone boolean default true)
returns table (outcome text, detail jsonb)
language plpgsql
set lock_timeout = '250ms'
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held boolean;
begin
  if p_alone then
    perform
       from pawl.job as j
      where j.id = p_job
        and j.claimed_by = p_worker
        and j.fence = p_fence;
    v_held := found;
  end if;
  update pawl.worker as w
     set alone_job = case when p_alone then p_job end,
         alone_fence = case when p_alone then p_fence end
   where w.id = p_worker
     and (v_held or not p_alone and w.alone_job = p_job and w.alone_fence = p_fence);
  return query
  select case when not p_alone then 'company' when found then 'alone' else 'lost' end, '{}'::jsonb;
end
$$;

-- The sweep that follows the death of a worker.

-- job_sweep takes back the jobs of the dead. Each is pending again after a short random pause, with
-- crashes + 1. If its attempts or crashes are used up, it becomes a dead letter. Crashes are used
-- up after max_crashes deaths at which the job was marked by worker_isolate, or three times as many
-- in all. A job without a worker counts as marked from its second death on. These count as dead:
--
-- - a worker that has left and abandoned jobs (worker_leave);
-- - a worker whose lease has ended. If it is announced as idle (worker_asleep), the sweep ends its
--   presence session too, so that a frozen worker does not stay announced. Your role must be
--   allowed to see and end that session, as the worker's own role is;
-- - a worker that declared its presence (worker_attend), has been silent for 1.5 s, and whose lock
--   was found free twice, at least 300 ms apart. A session younger than 5 s concludes nothing from
--   locks, because after a restart of the server all are free;
-- - a job claimed without a worker whose own lease has ended.
--
-- If the worker has left, or presence is the evidence, the attempt is given back and only the crash
-- counts. Only kinds in p_kinds become dead letters, because a sweeper does not decide on kinds it
-- does not know. Jobs whose transaction is still open are skipped. Deaths are recorded for
-- queue_death. A dead letter in a lane follows the lane's policy. If the next job gets the turn,
-- detail is that of job_finish.
--
-- Every worker runs it, and two at once are safe. One sweep serves all queues. If you have no
-- worker, run it about every second, in its own transaction, from a session that lives longer than
-- 5 s.
--
-- Outcomes:
--   swept  Done. The columns 'requeued', dead_lettered and 'workers' are counts.
--   busy   Another sweep is running.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   max_crashes  (1 to 1000, default 4) The crashes at which a job is a dead letter.
--   limit        (1 to 100,000, default 1000) Jobs a call, of workers and of leases of their own
--                each.
create or replace function pawl_v1.job_sweep(p_kinds text[], p_options jsonb default '{}')
returns table (outcome text, requeued int, dead_lettered int, workers int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_max_crashes int := pawl_v1._int_option(p_options, 'max_crashes', 4, 1, 1000);
  v_limit       int := pawl_v1._int_option(p_options, 'limit', 1000, 1, 100000);
  v_expired     bigint[];
  v_absent      bigint[];
  v_gone        bigint[];
  v_left        bigint[];
  v_requeued    int;
  v_dead        int;
  v_workers     int;
  v_ended       bigint[];
begin
  perform pawl_v1._check_options(p_options, '{max_crashes,limit}');
  if not pg_try_advisory_xact_lock(1885435756, 1) then -- 'pawl' in ASCII, then the lock's number
    return query
    select 'busy', 0, 0, 0, '{}'::jsonb;
    return;
  end if;

  v_expired := array(
    select w.id
      from pawl.worker as w
     where w.seen_at + w.lease < clock_timestamp()
     order by w.id
     limit 100
       for update skip locked);
  if cardinality(v_expired) > 0 then
    perform pawl_v1._presence_end(v_expired);
  end if;
  v_absent := pawl_v1._absent_workers(v_expired);
  v_gone := v_expired || v_absent;
  v_left := array(select w.id from pawl.worker as w where w.id = any (v_expired) and not isfinite(w.seen_at));

  insert into pawl.death as d (queue, died_at)
  select q.name, clock_timestamp()
    from pawl.worker as w
    cross join jsonb_array_elements_text(w.queues) as q (name)
   where w.id = any (v_gone)
     -- Not of a worker that has left and abandoned no job.
     and (isfinite(w.seen_at) or exists (select from pawl.job as j where j.claimed_by = w.id))
   group by q.name -- not distinct: the time differs per row
   order by q.name
  on conflict (queue) do update
     set died_at = excluded.died_at;

  with orphan as (
    select j.id,
           exists (
             select
               from pawl.worker as w
              where w.id = j.claimed_by
                and w.alone_job = j.id
                and w.alone_fence = j.fence) as alone
      from pawl.job as j
     where j.claimed_by = any (v_gone)
     order by j.id
     limit v_limit
       for update skip locked -- a locked row has a live holder
  ), expired as (
    select j.id, j.crashes > 0 as alone
      from pawl.job as j
     where j.claimed_by = 0
       and j.lease_expires_at < clock_timestamp()
     order by j.id
     limit v_limit
       for update skip locked
  ), swept as (
    update pawl.job as j
       set status = case
             when (due.alone and j.crashes_alone + 1 >= v_max_crashes
                   or j.crashes + 1 >= 3 * v_max_crashes
                   or j.attempts >= j.max_attempts and j.claimed_by <> all (v_absent || v_left))
                  and j.kind = any (p_kinds) then 'dead_letter'
             else 'pending'
           end,
           attempts = case when j.claimed_by = any (v_absent || v_left) then greatest(j.attempts - 1, 0) else j.attempts end,
           claimed_by = null,
           lease_expires_at = null,
           -- Jobs of unknown kinds are not dead-lettered, so bound it.
           crashes = least(j.crashes + 1, 1000),
           crashes_alone = least(j.crashes_alone + due.alone::int, 1000),
           available_at = clock_timestamp() + random() * power(2, least(j.crashes, 6)) * interval '100 milliseconds',
           last_errors = pawl_v1._push_error(j.last_errors,
             jsonb_build_object('code', 'crash', 'error', case
               when j.claimed_by = any (v_left) then 'the worker stopped, and the handler had not returned'
               else 'the worker died or froze past its lease'
             end), j.attempts, j.fence, j.claimed_by,
             case
               when j.claimed_by = 0 then j.lease_expires_at
               when j.claimed_by <> all (v_absent) then (select w.seen_at + w.lease from pawl.worker as w where w.id = j.claimed_by)
             end)
      from (select o.id, o.alone from orphan as o union all select e.id, e.alone from expired as e) as due
     where j.id = due.id
       and j.status = 'processing'
       and (j.claimed_by = any (v_gone) or j.claimed_by = 0 and j.lease_expires_at < clock_timestamp())
    returning j.id, j.status, j.lane_id
  )
  select count(*) filter (where s.status = 'pending'), count(*) filter (where s.status = 'dead_letter'),
         array_agg(s.id) filter (where s.status = 'dead_letter' and s.lane_id is not null)
    into v_requeued, v_dead, v_ended
    from swept as s;

  delete from pawl.worker as w
   where w.id = any (v_gone)
     and not exists (select from pawl.job as j where j.claimed_by = w.id);
  get diagnostics v_workers = row_count;
  delete from pawl.recall as r
   where not exists (select from pawl.worker as w where w.id = r.worker_id);
  return query
  select 'swept', v_requeued, v_dead, v_workers,
         case when v_ended is null then '{}' else pawl_v1._lanes_leave(v_ended) end;
end
$$;

-- _presence_end terminates the presence sessions of workers whose lease has ended and that are
-- declared idle, if the caller's role may. A frozen process or a lost host would stay idle as long
-- as the server keeps its connection, and each enqueue into its queues would notify. It terminates
-- no other session: only a presence connection holds both the worker's presence lock and the
-- exclusive lock of an idle queue, outside a transaction. Lookup and termination are one statement,
-- so the process id cannot have been reused. Sessions hidden from the caller's role are left to a
-- sweep with that role. If two workers share a number, the other reconnects.
create or replace function pawl_v1._presence_end(p_workers bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_worker bigint;
begin
  foreach v_worker in array p_workers loop
    begin
      perform pg_terminate_backend(l.pid)
         from pg_catalog.pg_locks as l
         join pg_catalog.pg_stat_activity as a on a.pid = l.pid
        where l.locktype = 'advisory'
          and l.database = a.datid
          and a.datname = current_database()
          and l.classid = 1885435757
          and l.objid = pawl_v1._presence(v_worker)::oid
          and l.objsubid = 2 -- a key of two ints
          and l.granted
          and l.mode = 'ExclusiveLock'
          and l.pid <> pg_backend_pid()
          and a.state in ('idle', 'disabled') -- disabled: track_activities is off
          and exists (
                select
                  from pg_catalog.pg_locks as s
                 where s.locktype = 'advisory'
                   and s.pid = l.pid
                   and s.database = l.database
                   and s.classid = 1885435767
                   and s.objsubid = 2
                   and s.granted
                   and s.mode = 'ExclusiveLock');
    exception
      when insufficient_privilege then null; -- a session of another role
    end;
  end loop;
end
$$;

-- _absent_workers returns the workers that are dead by the evidence of their presence locks, each
-- locked FOR UPDATE. suspected_at keeps the first finding; a heartbeat clears it.
create or replace function pawl_v1._absent_workers(p_known bigint[])
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_absent bigint[] := '{}';
  v_worker pawl.worker;
  v_free   boolean;
begin
  perform
     from pg_catalog.pg_stat_activity as a
    where a.pid = pg_backend_pid()
      and a.backend_start < clock_timestamp() - interval '5 seconds';
  if not found then
    return v_absent;
  end if;
  for v_worker in
    select w.*
      from pawl.worker as w
     where w.presence
       and w.seen_at < clock_timestamp() - interval '1500 milliseconds'
       and w.id <> all (p_known)
     order by w.id
     limit 100
       for update skip locked
  loop
    -- A session gets a lock that it holds again, so its own lock is no evidence.
    perform
       from pg_catalog.pg_locks as l
      where l.locktype = 'advisory'
        and l.pid = pg_backend_pid()
        and l.classid = 1885435757
        and l.objid = pawl_v1._presence(v_worker.id)::oid
        and l.objsubid = 2; -- a key of two ints
    v_free := not found and pg_try_advisory_xact_lock(1885435757, pawl_v1._presence(v_worker.id));
    if v_free and v_worker.suspected_at < clock_timestamp() - interval '300 milliseconds' then
      v_absent := v_absent || v_worker.id;
    elsif v_free <> (v_worker.suspected_at is not null) then
      update pawl.worker as w
         set suspected_at = case when v_free then clock_timestamp() end
       where w.id = v_worker.id;
    end if;
  end loop;
  return v_absent;
end
$$;

-- queue_death returns when a worker of the queue last died, as far as known, by the database's
-- clock. A consumer uses it to decide whether a redelivered message may have killed its process.
-- Workers name their queues in worker_register.
--
-- Outcomes:
--   died    A sweep found a worker dead at died_at.
--   silent  A worker has sent no heartbeat for 3 s, and no sweep has judged it yet. It may be dead,
--           and died_at is now.
--   none    No death is known.
create or replace function pawl_v1.queue_death(p_queue text)
returns table (outcome text, died_at timestamptz, detail jsonb)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select case when s.silent then 'silent' when d.died_at is null then 'none' else 'died' end,
         case when s.silent then clock_timestamp() else d.died_at end,
         '{}'::jsonb
    from (select exists (
                   select
                     from pawl.worker as w
                    where w.queues ? p_queue
                      and isfinite(w.seen_at)
                      and w.seen_at < clock_timestamp() - interval '3 seconds') as silent) as s
    left join pawl.death as d on d.queue = p_queue
$$;

-- Enqueue keys over time.

-- job_key_purge deletes expired enqueue keys, at most p_limit (1 to 10,000). Every worker calls it
-- about once a minute. If a key's job has a row in any status, the key stays. Otherwise a second
-- job could run beside the first, which may be a dead letter that an operator retries. Such a key
-- is remembered for as long again as it has been, and not looked at until then. Locked rows wait
-- for the next call.
--
-- A backlog is purged in rounds. Pass detail.next of a call as option 'since' of the next. That
-- call then skips the dead entries of the calls before it, until vacuum has removed them. Begin a
-- round without it.
--
-- Outcomes:
--   purged  The column purged is the number of rows. detail.kept is the number of keys that stay
--           because of their jobs. detail.next is where the next call begins; it is absent if no
--           key was found.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   older_than_ms  (0 to 10 years, default 24 h) Skip keys taken since. The call reads no further,
--                  so raise it to the shortest retention_ms in use.
--   since          (timestamp, default the beginning) Where the walk begins.
create or replace function pawl_v1.job_key_purge(p_limit int default 1000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- walk the age index in order: docs/decisions/0036-purging.md
set enable_sort = off
set enable_seqscan = off
as $$
declare
  v_before timestamptz;
  v_due    tid[];
  v_next   timestamptz;
  v_purged int;
  v_kept   int;
begin
  perform pawl_v1._check_options(p_options, '{older_than_ms,since}');
  perform pawl_v1._check_int('limit', p_limit, 1, 10000);
  v_before := pawl_v1._before(pawl_v1._int_option(p_options, 'older_than_ms', 86400000, 0, 315360000000));
  -- ctids of locked rows do not change. A join by key could read the whole table.
  select array_agg(d.ctid), max(d.created_at)
    into v_due, v_next
    from (
      select k.ctid, k.created_at
        from pawl.job_key as k
       where k.created_at < v_before
         and k.created_at >= pawl_v1._since(p_options)
         and k.expires_at < clock_timestamp()
       order by k.created_at
       limit coalesce(p_limit, 1000)
         for update skip locked
    ) as d;
  delete from pawl.job_key as k
   where k.ctid = any (v_due)
     and k.expires_at < clock_timestamp()
     and not exists (select from pawl.job as j where j.id = k.job_id);
  get diagnostics v_purged = row_count;
  update pawl.job_key as k
     set expires_at = clock_timestamp() + (k.expires_at - k.created_at)
   where k.ctid = any (v_due)
     and k.expires_at < clock_timestamp();
  get diagnostics v_kept = row_count;
  return query
  select 'purged', v_purged, jsonb_strip_nulls(jsonb_build_object('kept', nullif(v_kept, 0), 'next', v_next));
end
$$;

-- Counts per minute and hour, for charts. If a process dies, its counts since the last call are
-- lost.

-- rollup_add adds a process's counts since its last call to the current minute and the current hour
-- of pawl.rollup, by the server's clock. The dashboard (docs/guides/dashboard.md) draws its charts
-- from that table. Workers and consumers in Go call it by themselves, about every 15 seconds.
--
-- p_source is what p_scopes name: 'queue' or 'consumer'. The scope '' belongs to none of them. A
-- name has 1 to 40 characters of a to z and _; for events take those of docs/reference/events.md. A
-- value lies between 0 and 10^12. Elements of the arrays belong together by position, up to 1,000
-- each.
--
-- The column sample asks for levels: no level of a queue was added in this minute. The chart takes
-- these, with the scope '' for all queues together: 'due', 'oldest_due_ms', 'processing',
-- 'dead_letters', 'unknown', 'workers', 'workers_silent'. Moments without 'workers' are shown as
-- gaps. With 'queues_left_out', queues without levels at that moment are shown as gaps too.
-- Otherwise they had none.
--
-- Sweepers of package guard add the events of a table under 'consumer' with the scope
-- 'guard/TABLE'. They also add the level 'final_rows': how many rows are not tried again
-- (docs/guides/choose.md#rows-that-are-not-tried-again).
--
-- Minutes are kept for 24 hours, hours for 7 days, and each call deletes up to 500 older rows of
-- both. If an hour has 500 rows, a count that would need another one is added under the scope ''.
--
-- These are statistics. If a process dies, the counts that it has not yet added are lost. If the
-- reply to a call is lost, you cannot know whether it was added. To count effects, count your rows.
--
-- Outcomes:
--   added  Done.
--
-- Errors:
--   55P03  A row was locked for 2 s.
--   P4004  An argument.
--
-- Options:
--   levels  (boolean) The values are levels: the highest is kept. Counts are added up.
create or replace function pawl_v1.rollup_add(p_source text, p_scopes text[], p_names text[], p_values bigint[], p_options jsonb default '{}')
returns table (outcome text, sample boolean, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_minute timestamptz := date_trunc('minute', clock_timestamp(), 'UTC');
  v_hour   timestamptz := date_trunc('hour', clock_timestamp(), 'UTC');
  v_kind   text;
  v_full   boolean;
begin
  perform pawl_v1._check_options(p_options, '{levels}');
  v_kind := case when (p_options ->> 'levels')::boolean then 'level' else 'count' end;
  if p_source is null or p_source not in ('queue', 'consumer') then
    raise exception 'the source must be queue or consumer, it is %', coalesce(quote_literal(left(p_source, 100)), 'null')
      using errcode = 'P4004';
  end if;
  if cardinality(p_names) is distinct from cardinality(p_scopes) or cardinality(p_values) is distinct from cardinality(p_scopes)
     or coalesce(cardinality(p_scopes), 1001) > 1000 then
    raise exception 'scopes, names and values must be arrays of one length up to 1000, they have %, % and %', cardinality(p_scopes), cardinality(p_names), cardinality(p_values)
      using errcode = 'P4004';
  end if;
  if exists (
       select
         from unnest(p_scopes, p_names, p_values) as g (scope, name, value)
        where coalesce(octet_length(g.scope) > 255 or g.name !~ '^[a-z_]{1,40}$' or g.value not between 0 and 1000000000000, true)) then
    raise exception 'a scope must have up to 255 octets, a name 1 to 40 of a-z and _, a value must lie between 0 and 10^12'
      using errcode = 'P4004';
  end if;
  select count(*) >= 500
    into v_full
    from (
      select
        from pawl.rollup as r
       where r.span = 'hour'
         and r.at = v_hour
       limit 500
    ) as r;
  insert into pawl.rollup as r (span, at, kind, source, scope, name, value)
  select s.span, s.at, v_kind, p_source, g.scope, g.name, case v_kind when 'level' then max(g.value) else sum(g.value) end
    from (
      select case when v_full and not exists (
                         select
                           from pawl.rollup as k
                          where k.span = 'hour'
                            and k.at = v_hour
                            and k.kind = v_kind
                            and k.source = p_source
                            and k.scope = g.scope
                            and k.name = g.name) then ''
                  else g.scope
             end as scope, g.name, g.value
        from unnest(p_scopes, p_names, p_values) as g (scope, name, value)
    ) as g
   cross join (values ('hour', v_hour), ('minute', v_minute)) as s (span, at)
   group by s.span, s.at, g.scope, g.name
   -- Same order in every call, so that two cannot deadlock.
   order by s.span, g.scope collate "C", g.name collate "C"
  on conflict (span, at, kind, source, scope, name) do update
     set value = case v_kind when 'level' then greatest(r.value, excluded.value) else r.value + excluded.value end;
  perform pawl_v1._rollup_forget('minute', v_minute - interval '24 hours');
  perform pawl_v1._rollup_forget('hour', v_hour - interval '7 days');
  return query
  select 'added', p_source = 'queue' and not exists (
           select
             from pawl.rollup as r
            where r.span = 'minute'
              and r.at = v_minute
              and r.kind = 'level'
              and r.source = 'queue'), '{}'::jsonb;
end
$$;

-- _rollup_forget deletes up to 500 older rows of one span. It skips locked rows.
create or replace function pawl_v1._rollup_forget(p_span text, p_before timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pawl.rollup as r
   where r.ctid = any (array(
           select o.ctid
             from pawl.rollup as o
            where o.span = p_span
              and o.at < p_before
            order by o.at
            limit 500
              for update skip locked));
end
$$;

-- Attempts that came back too late and were refused. A refusal rolls its transaction back, so the
-- refused process records it afterwards.

-- stale_write_add records attempts that came too late and were refused, so that function explain
-- shows them. Call it after the refusal, outside the refused transaction, which is rolled back.
-- Workers and commands in Go call it by themselves.
--
-- p_kind is 'job', with queues as scopes and ids as keys, or 'command'. p_fences are the fences of
-- the refused attempts, and p_workers the names of their processes. Elements of the arrays belong
-- together by position, up to 1,000 each. There are no options.
--
-- A known refusal is not recorded again. Refusals are kept for 7 days, and each call deletes up to
-- 500 older ones. They are for people: no decision of Pawl depends on them.
--
-- Outcomes:
--   recorded  All are recorded. detail.recorded is the number of new ones.
--   full      Some were not recorded: an hour has 1,000 at most.
--
-- Errors:
--   55P03  A row was locked for 2 s.
--   P4004  An argument.
create or replace function pawl_v1.stale_write_add(p_kind text, p_scopes text[], p_keys text[], p_fences bigint[], p_workers text[], p_options jsonb default '{}')
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_room  int;
  v_added int;
begin
  perform pawl_v1._check_options(p_options, '{}');
  if p_kind is null or p_kind not in ('job', 'command') then
    raise exception 'the kind must be job or command, it is %', coalesce(quote_literal(left(p_kind, 100)), 'null')
      using errcode = 'P4004';
  end if;
  if cardinality(p_keys) is distinct from cardinality(p_scopes) or cardinality(p_fences) is distinct from cardinality(p_scopes)
     or cardinality(p_workers) is distinct from cardinality(p_scopes) or coalesce(cardinality(p_scopes), 1001) > 1000 then
    raise exception 'scopes, keys, fences and workers must be arrays of one length up to 1000, they have %, %, % and %',
                    cardinality(p_scopes), cardinality(p_keys), cardinality(p_fences), cardinality(p_workers)
      using errcode = 'P4004';
  end if;
  if exists (
       select
         from unnest(p_scopes, p_keys, p_fences, p_workers) as g (scope, key, fence, worker)
        where coalesce(octet_length(g.scope) not between 1 and 255 or octet_length(g.key) not between 1 and 255
                       or octet_length(g.worker) not between 1 and 255 or g.fence < 0, true)) then
    raise exception 'a scope, a key and the name of a worker must have 1 to 255 octets, a fence must not be negative'
      using errcode = 'P4004';
  end if;
  select 1000 - count(*)
    into v_room
    from (
      select
        from pawl.stale_write as w
       where w.at > clock_timestamp() - interval '1 hour'
       limit 1000
    ) as w;
  insert into pawl.stale_write (kind, scope, key, fence, worker)
  select p_kind, g.scope, g.key, g.fence, min(g.worker)
    from unnest(p_scopes, p_keys, p_fences, p_workers) as g (scope, key, fence, worker)
   group by g.scope, g.key, g.fence
   -- Same order in every call, so that two cannot deadlock.
   order by g.key collate "C", g.scope collate "C", g.fence
   limit v_room
  on conflict (kind, key, scope, fence) do nothing;
  get diagnostics v_added = row_count;
  delete from pawl.stale_write as w
   where w.ctid = any (array(
           select o.ctid
             from pawl.stale_write as o
            where o.at < clock_timestamp() - interval '7 days'
            order by o.at
            limit 500
              for update skip locked));
  return query
  select case when v_room < cardinality(p_scopes) then 'full' else 'recorded' end, jsonb_build_object('recorded', v_added);
end
$$;

-- These verbs are the only audited way to change a job by hand. Each locks the job, decides by its
-- status, raises its fence with the change, and inserts one row into pawl.audit. If you have a
-- transaction open, change and record commit together in it. The new fence makes the operator a new
-- holder, so a running attempt gets P4020 at its next call.
--
-- p_actor (1 to 255 octets) is the operator and p_reason (1 to 4000) the reason. The actor is not
-- verified: the role of the login decides its rights. The record holds the job before and after as
-- JSON, without 'payload', of which payload_octets and payload_sha256 are kept.

create or replace function pawl_v1._check_by(p_actor text, p_reason text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
begin
  if p_actor is null or octet_length(p_actor) not between 1 and 255 then
    raise exception 'actor must have 1 to 255 octets, it has %', coalesce(octet_length(p_actor), 0)
      using errcode = 'P4004', hint = 'pass who is doing this, a person or a program';
  end if;
  if p_reason is null or octet_length(p_reason) not between 1 and 4000 then
    raise exception 'reason must have 1 to 4000 octets, it has %', coalesce(octet_length(p_reason), 0)
      using errcode = 'P4004', hint = 'pass why, in a sentence that somebody else understands next year';
  end if;
end
$$;

-- _check_fence_seen requires the fence that a verdict is about. Else it could settle the next call.
create or replace function pawl_v1._check_fence_seen(p_fence bigint)
returns void
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_fence is null then
    raise exception 'a verdict needs the fence of what it is about'
      using errcode = 'P4004', hint = 'pass the fence that was shown when you looked: see pawl_v1.steps, pawl_v1.stale_commands';
  end if;
end
$$;

-- _job_locked returns a job's row, locked; null if there is none. A waiting job in its head's
-- running batch counts as processing.
create or replace function pawl_v1._job_locked(p_id bigint)
returns pawl.job
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_job pawl.job;
  v_pid int;
begin
  begin
    select j.*
      into v_job
      from pawl.job as j
     where j.id = p_id
       for update;
  exception
    when lock_not_available then
      select l.pid
        into v_pid
        from pawl.job as j
        join pg_catalog.pg_locks as l on l.transactionid = j.xmax
       where j.id = p_id
         and l.granted;
      raise exception 'job % is locked by an open transaction, most likely that of its attempt', p_id
        using errcode = '55P03',
              hint = 'ask again when that has ended, or end it: select pg_terminate_backend('
                || coalesce(v_pid::text, 'its pid, see pg_stat_activity') || ')';
  end;
  if v_job.status = 'waiting'
     and exists (
       select
         from pawl.job as h
        where h.lane_id = v_job.lane_id
          and h.lane_head
          and h.status = 'processing'
          and h.batch_end >= v_job.position) then
    v_job.status := 'processing';
  end if;
  return v_job;
end
$$;

-- _operate checks the common arguments and returns the row locked; null if there is none.
create or replace function pawl_v1._operate(p_id bigint, p_actor text, p_reason text, p_options jsonb)
returns pawl.job
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_from(p_options);
  perform pawl_v1._check_by(p_actor, p_reason);
  return pawl_v1._job_locked(p_id);
end
$$;

-- _refusal returns the answer of a refused verb, or no row. detail.hint is the next step.
create or replace function pawl_v1._refusal(p_job pawl.job, p_takes text[], p_options jsonb)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_from  text[] := pawl_v1._text_array_option(p_options, 'from');
  v_fence bigint := pawl_v1._int_option(p_options, 'fence', null, 0, 9223372036854775807);
  v_hint  text;
begin
  if p_job.id is null then
    return query
    select 'absent', jsonb_build_object('hint', 'it finished, was discarded, or was never there');
    return;
  end if;
  if p_job.status <> all (p_takes) then
    v_hint := case p_job.status
      when 'processing' then 'an attempt is running: let it end, or cancel the job first'
      when 'unknown' then 'it is unknown whether a call of it was executed: its step needs a verdict, see step_settle'
      when 'waiting' then 'nothing failed: it waits for its turn in its lane'
      when 'succeeded' then 'it has ended well'
      else 'it has ended: retry or discard it'
    end;
  elsif p_job.status <> all (v_from) then
    v_hint := 'asked for jobs that are ' || array_to_string(v_from, ' or ') || ' only';
  elsif p_job.fence <> v_fence then
    v_hint := 'it has been tried or changed since you looked: its fence is ' || p_job.fence || ', not ' || v_fence || '; look again';
  else
    return;
  end if;
  return query
  select 'refused', jsonb_build_object('status', p_job.status, 'hint', v_hint);
end
$$;

-- A misspelt status in option from would refuse every job.
create or replace function pawl_v1._check_from(p_options jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_unknown text;
begin
  select f.status
    into v_unknown
    from unnest(pawl_v1._text_array_option(p_options, 'from')) as f (status)
   where f.status is null
      or f.status not in ('pending', 'waiting', 'processing', 'unknown', 'dead_letter', 'cancelled', 'succeeded')
   limit 1;
  if found then
    raise exception 'option from names no status: %', coalesce(v_unknown, 'null')
      using errcode = 'P4004',
            hint = 'known here: pending, waiting, processing, unknown, dead_letter, cancelled, succeeded';
  end if;
end
$$;

-- _job_record is a job as the audit keeps it, with the payload's length and SHA-256.
create or replace function pawl_v1._job_record(p_job pawl.job)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  v_payload bytea := p_job.payload;
begin
  if p_job.id is null then
    return null;
  end if;
  p_job.payload := null;
  return to_jsonb(p_job) - 'payload'
    || jsonb_build_object('payload_octets', octet_length(v_payload), 'payload_sha256', encode(sha256(v_payload), 'hex'));
end
$$;

-- p_after null: deleted.
create or replace function pawl_v1._job_audit(p_verb text, p_actor text, p_reason text, p_before pawl.job, p_after pawl.job)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pawl.audit (actor, verb, target, reason, before, after)
  values (p_actor, p_verb, 'job ' || (p_before).id, p_reason, pawl_v1._job_record(p_before), pawl_v1._job_record(p_after))
$$;

-- job_retry makes a job due now: a dead letter, a cancelled job, or a pending one that waits for
-- its next try. Its attempts and crashes start from zero, and its errors stay. It is the same job
-- with the same key and inbox row. The retry is therefore no duplicate, and a message that comes
-- again meanwhile is one. A recall by job_cancel that the worker has not fetched yet ends the
-- cancelled attempt, and no later one.
--
-- In a lane, a dead letter that blocks it has kept its turn and is next. One that gave up its turn
-- comes back at its old position, behind the job that has the turn now: detail.lane is 'pending' or
-- 'waiting'. Under the policy 'skip' it leaves the lane: 'left'.
--
-- Outcomes:
--   retried  detail.status is the job's status before.
--   refused  Its status, or an option, does not allow it; nothing changed. detail.status is its
--            status, and detail.hint the next step.
--   absent   There is no such job.
--
-- Errors:
--   P4004  Actor, reason or an option.
--   55P03  An open transaction has had the row for more than 2 s, most likely the attempt's own.
--          Nothing changed. The hint names the session.
--
-- Options:
--   from   (array of statuses, default all that the function takes) A job in any other is refused.
--          Pass the status that you saw, so that you do not overwrite a decision made in between.
--   fence  (number, default none) The fence that you saw in view jobs or dead_letters. A job that
--          was tried or changed since is refused. Pass it when you decide by what an attempt did or
--          did not do.
create or replace function pawl_v1.job_retry(p_id bigint, p_actor text, p_reason text, p_options jsonb default '{}')
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.job;
  v_after  pawl.job;
  v_lane   jsonb := '{}';
begin
  perform pawl_v1._check_options(p_options, '{from,fence}');
  v_before := pawl_v1._operate(p_id, p_actor, p_reason, p_options);
  return query
  select r.outcome, r.detail
    from pawl_v1._refusal(v_before, '{dead_letter,cancelled,pending}', p_options) as r;
  if found then
    return;
  end if;
  if v_before.lane_id is not null and not v_before.lane_head then
    v_lane := pawl_v1._lane_again(v_before);
  end if;
  update pawl.job as j
     set status = case when j.status = 'waiting' then 'waiting' else 'pending' end,
         fence = j.fence + 1,
         attempts = 0,
         crashes = 0,
         crashes_alone = 0,
         available_at = clock_timestamp()
   where j.id = p_id -- locked since its status was read
  returning j.*
       into v_after;
  perform pawl_v1._job_audit('job_retry', p_actor, p_reason, v_before, v_after);
  perform pawl_v1._wake(array[v_after.queue]);
  return query
  select 'retried', jsonb_build_object('status', v_before.status) || v_lane;
end
$$;

-- _lane_again returns a job that gave up its lane to its old position, or takes it out of the lane
-- under policy skip. The job's row is locked: no deadlock, as holders of lanes wait only for heads.
create or replace function pawl_v1._lane_again(p_job pawl.job)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_policy text;
  v_status text;
begin
  update pawl.lane as l
     set ver = l.ver + 1
   where l.id = p_job.lane_id
  returning l.policy
       into v_policy;
  if v_policy = 'skip' then
    update pawl.job as j
       set status = 'pending',
           lane_id = null,
           position = null
     where j.id = p_job.id;
    return '{"lane": "left"}';
  end if;
  update pawl.job as j
     set status = 'waiting'
   where j.id = p_job.id;
  perform pawl_v1._lanes_advance(array[p_job.lane_id]);
  select j.status
    into v_status
    from pawl.job as j
   where j.id = p_job.id;
  return jsonb_build_object('lane', v_status);
end
$$;

-- _job_stop cancels a job whose row is locked, and recalls a running attempt from its worker.
create or replace function pawl_v1._job_stop(p_before pawl.job)
returns pawl.job
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_after pawl.job;
begin
  update pawl.job as j
     set status = 'cancelled',
         lane_head = false,
         fence = j.fence + 1,
         claimed_by = null,
         lease_expires_at = null
   where j.id = p_before.id -- locked since its status was read
  returning j.*
       into v_after;
  insert into pawl.recall (worker_id, job_id, fence)
  select p_before.claimed_by, p_before.id, p_before.fence
   where p_before.claimed_by <> 0;
  return v_after;
end
$$;

-- job_cancel ends a job that has not ended, and keeps it to be retried or discarded. A running
-- attempt is fenced out: its next hold, finish or fail raises P4020 with DETAIL 'cancelled'. Its
-- worker finds the job in column recalled of its next worker_heartbeat, once. The attempt's effects
-- outside the database cannot be undone.
--
-- If the job had the turn of a lane, detail is also that of job_finish. The next job may start
-- while the handler of this one still runs. An attempt with an open transaction holds the row until
-- it ends: see job_recall.
--
-- Outcomes:
--   cancelled        detail.status is the job's status before.
--   refused, absent  As of job_retry.
--
-- Errors:
--   P4004, 55P03  As of job_retry.
--
-- Options:
--   from, fence  As of job_retry.
create or replace function pawl_v1.job_cancel(p_id bigint, p_actor text, p_reason text, p_options jsonb default '{}')
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.job;
  v_after  pawl.job;
begin
  perform pawl_v1._check_options(p_options, '{from,fence}');
  v_before := pawl_v1._operate(p_id, p_actor, p_reason, p_options);
  return query
  select r.outcome, r.detail
    from pawl_v1._refusal(v_before, '{pending,waiting,processing}', p_options) as r;
  if found then
    return;
  end if;
  v_after := pawl_v1._job_stop(v_before);
  perform pawl_v1._job_audit('job_cancel', p_actor, p_reason, v_before, v_after);
  return query
  select 'cancelled', jsonb_build_object('status', v_before.status)
    || case when v_before.lane_head then pawl_v1._lane_freed(v_before.lane_id, v_before.queue) else '{}' end;
end
$$;

-- job_recall asks the worker that runs a job to end its handler, at its next heartbeat (500 ms).
-- The attempt rolls back and gives the job back, uncharged. The call changes no row that lasts and
-- leaves no record.
--
-- Use it to cancel a job whose attempt has locked the row, as 'pawl jobs cancel' does. First call
-- it in its own transaction. Then call job_cancel, which waits for the lock and gets it before the
-- attempt can give the job back.
--
-- Outcomes:
--   recalled  The worker learns of it at its next heartbeat.
--   not_held  No worker runs the job.
create or replace function pawl_v1.job_recall(p_id bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  insert into pawl.recall (worker_id, job_id, fence)
  select j.claimed_by, j.id, j.fence
    from pawl.job as j
   where j.id = p_id
     and j.status = 'processing'
     and j.claimed_by <> 0;
  return query
  select case when found then 'recalled' else 'not_held' end, '{}'::jsonb;
end
$$;

-- job_discard deletes a job that no worker runs, with its payload and its errors. The audit keeps
-- the rest, with 'after' null. Its inbox row and its key stay, so a redelivery, or the same key, is
-- still a duplicate. If it had the turn of a lane, detail is also that of job_finish.
--
-- Outcomes:
--   discarded        detail.status is the job's status before.
--   refused, absent  As of job_retry.
--
-- Errors:
--   P4004, 55P03  As of job_retry.
--
-- Options:
--   from, fence  As of job_retry.
create or replace function pawl_v1.job_discard(p_id bigint, p_actor text, p_reason text, p_options jsonb default '{}')
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.job;
begin
  perform pawl_v1._check_options(p_options, '{from,fence}');
  v_before := pawl_v1._operate(p_id, p_actor, p_reason, p_options);
  return query
  select r.outcome, r.detail
    from pawl_v1._refusal(v_before, '{dead_letter,cancelled,pending,waiting}', p_options) as r;
  if found then
    return;
  end if;
  delete from pawl.job as j
   where j.id = p_id;
  perform pawl_v1._job_audit('job_discard', p_actor, p_reason, v_before, null);
  return query
  select 'discarded', jsonb_build_object('status', v_before.status)
    || case when v_before.lane_head then pawl_v1._lane_freed(v_before.lane_id, v_before.queue) else '{}' end;
end
$$;

-- lane_unblock ends the turn of a dead letter that blocks its lane, so that the lane continues. The
-- dead letter stays, to be retried or discarded. To keep the order, call job_retry on the dead
-- letter instead. It leaves a record in pawl.audit.
--
-- Outcomes:
--   unblocked  detail.job has given up its turn. detail is also that of job_finish.
--   refused    detail.job has the turn. detail.status and detail.hint have the reason.
--   idle       No job has the turn.
--   absent     There is no such lane.
--
-- Errors:
--   P4004  Actor, reason or an option.
--   55P03  An open transaction has had the lane, or the job, for more than 2 s. Nothing changed.
--
-- Options:
--   job  (id, default none) The dead letter. If another job blocks the lane now, the call is
--        refused.
create or replace function pawl_v1.lane_unblock(
  p_queue   text,
  p_lane    text,
  p_actor   text,
  p_reason  text,
  p_options jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_lane     bigint;
  v_before   pawl.job;
  v_after    pawl.job;
  v_advanced record;
  v_only     bigint := pawl_v1._int_option(p_options, 'job', null, 1, 9223372036854775807);
begin
  perform pawl_v1._check_options(p_options, '{job}');
  perform pawl_v1._check_by(p_actor, p_reason);
  update pawl.lane as l
     set ver = l.ver + 1
   where l.queue = p_queue
     and l.name = p_lane
  returning l.id
       into v_lane;
  if not found then
    return query
    select 'absent', jsonb_build_object('hint', 'no job of this queue has been enqueued into it, or it was purged');
    return;
  end if;
  select j.*
    into v_before
    from pawl.job as j
   where j.lane_id = v_lane
     and j.lane_head
     for update;
  if not found then
    perform pawl_v1._lanes_advance(array[v_lane]), pawl_v1._wake(array[p_queue]);
    return query
    select 'idle', '{}'::jsonb;
    return;
  end if;
  if v_before.status <> 'dead_letter' or v_before.id <> v_only then
    return query
    select 'refused', jsonb_build_object('job', v_before.id, 'status', v_before.status, 'hint', case
      when v_before.status = 'unknown' then 'it is unknown whether a call of it was executed: its step needs a verdict, see step_settle'
      when v_before.status <> 'dead_letter' then 'it is not dead: let it end, or cancel it'
      else 'another job blocks the lane by now' end);
    return;
  end if;
  update pawl.job as j
     set lane_head = false
   where j.id = v_before.id
  returning j.*
       into v_after;
  perform pawl_v1._job_audit('lane_unblock', p_actor, p_reason, v_before, v_after);
  select a.promoted, a.stuck
    into v_advanced
    from pawl_v1._lanes_advance(array[v_lane]) as a;
  perform pawl_v1._wake(array[p_queue]);
  return query
  select 'unblocked', jsonb_build_object('job', v_before.id)
    || case when v_advanced.promoted > 0 then jsonb_build_object('promoted', v_advanced.promoted) else '{}' end
    || case when cardinality(v_advanced.stuck) > 0 then jsonb_build_object('skipped', to_jsonb(v_advanced.stuck)) else '{}' end;
end
$$;

-- lane_policy sets what a lane does from now on when the job that has its turn becomes a dead
-- letter. A dead letter that blocks it already still does: see lane_unblock. The lane is not purged
-- any more. It leaves a record in pawl.audit.
--
-- Values of p_policy:
--   block  The lane stops until an operator retries or discards the dead letter, or calls
--          lane_unblock.
--   park   The next job gets the turn. If the dead letter is retried, it comes back at its old
--          position.
--   skip   The next job gets the turn. If the dead letter is retried, it leaves the lane.
--
-- Outcomes:
--   changed  detail.policy is the policy before.
--   absent   There is no such lane.
--
-- Errors:
--   P4004, 55P03  As of lane_unblock.
create or replace function pawl_v1.lane_policy(p_queue text, p_lane text, p_policy text, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.lane;
  v_after  pawl.lane;
begin
  perform pawl_v1._check_lane_policy(p_policy);
  perform pawl_v1._check_by(p_actor, p_reason);
  select l.*
    into v_before
    from pawl.lane as l
   where l.queue = p_queue
     and l.name = p_lane
     for no key update;
  if not found then
    return query
    select 'absent', jsonb_build_object('hint', 'no job of this queue has been enqueued into it, or it was purged');
    return;
  end if;
  update pawl.lane as l
     set ver = l.ver + 1,
         kept = true,
         policy = p_policy
   where l.id = v_before.id
  returning l.*
       into v_after;
  insert into pawl.audit (actor, verb, target, reason, before, after)
  values (p_actor, 'lane_policy', 'lane ' || v_before.id, p_reason, to_jsonb(v_before), to_jsonb(v_after));
  return query
  select 'changed', jsonb_build_object('policy', v_before.policy);
end
$$;

-- queue_set changes settings of a queue, for claims and finishes that begin after the commit, in
-- any process. The queue need not have had a job. It leaves a record in pawl.audit, whose target is
-- 'queue' and the queue's id. If you turn the archive off, its jobs stay until they are seven days
-- old.
--
-- An option that is absent or null stays unchanged. In every mode running attempts continue, and
-- jobs can be enqueued. A claim that is under way at the commit may still take its jobs.
--
-- Outcomes:
--   changed    detail has 'archive' and 'mode' before.
--   unchanged  It was so already. There is no record.
--
-- Errors:
--   P4000  The queue's name.
--   P4004  Actor, reason or an option.
--   55P03  Another transaction has been setting the same queue for more than 2 s.
--
-- Options:
--   archive  (boolean) Finished jobs are kept with their payloads for seven days.
--   mode     ('running', 'draining' or 'paused', default 'running') Which jobs may be claimed.
--            'running': due ones. 'draining': only those that were tried before (attempts or
--            crashes above 0), so that begun work ends. 'paused': none.
create or replace function pawl_v1.queue_set(p_queue text, p_options jsonb, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.queue;
  v_after  pawl.queue;
  v_was    jsonb;
begin
  perform pawl_v1._check_options(p_options, '{archive,mode}');
  perform pawl_v1._check_scope('queue', p_queue);
  perform pawl_v1._check_by(p_actor, p_reason);
  if coalesce(jsonb_typeof(p_options -> 'archive'), 'null') not in ('boolean', 'null') then
    raise exception 'option archive must be true or false, it is %', p_options -> 'archive'
      using errcode = 'P4004';
  end if;
  if p_options ->> 'mode' not in ('running', 'draining', 'paused') then
    raise exception 'option mode is running, draining or paused, not %', p_options ->> 'mode'
      using errcode = 'P4004';
  end if;
  insert into pawl.queue as q (name)
  select p_queue
   where (p_options ->> 'archive')::boolean -- for the defaults no row is needed
      or p_options ->> 'mode' <> 'running'
  on conflict do nothing;
  select q.*
    into v_before
    from pawl.queue as q
   where q.name = p_queue
     for update;
  v_was := jsonb_build_object('archive', coalesce(v_before.archive, false), 'mode', coalesce(v_before.mode, 'running'));
  if v_was @> jsonb_strip_nulls(p_options) then
    return query
    select 'unchanged', v_was;
    return;
  end if;
  update pawl.queue as q
     set archive = coalesce((p_options ->> 'archive')::boolean, q.archive),
         mode = coalesce(p_options ->> 'mode', q.mode)
   where q.name = p_queue
  returning q.*
       into v_after;
  insert into pawl.audit (actor, verb, target, reason, before, after)
  values (p_actor, 'queue_set', 'queue ' || v_before.id, p_reason, to_jsonb(v_before), to_jsonb(v_after));
  if v_after.mode <> 'paused' then
    perform pawl_v1._wake(array[p_queue]);
  end if;
  return query
  select 'changed', v_was;
end
$$;

-- Changes that an application may make to its own jobs: cancel, or run at another time. Call them
-- in the transaction that makes the job unnecessary, such as the payment before its reminder. They
-- take no actor and no reason and write no audit record. Operators use job_cancel and job_retry.

-- job_cancel_own is job_cancel for the application that enqueued the job. Call it in the
-- transaction that makes the job needless: the order is paid, so its reminder goes. It takes no
-- actor and writes no audit record.
--
-- The job's key stays remembered. If the job was running, its worker is notified after you commit.
-- A job that waits in its lane counts as processing while it is in the batch of its head
-- (lane_batch), because its work may be done already. The same holds for job_reschedule, job_cancel
-- and job_discard. A batch that begins before you commit takes the job along.
--
-- Outcomes:
--   cancelled  It will not run, or its running attempt is recalled. detail.status is its status
--              before. In a lane, detail is also that of job_finish.
--   refused    It has ended, or waits for a verdict: detail.status, detail.hint.
--   absent     It finished, was discarded, or never existed.
--
-- Errors:
--   55P03  An open transaction has had the row for more than 2 s, most likely that of its handler.
--          Nothing changed.
create or replace function pawl_v1.job_cancel_own(p_id bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.job := pawl_v1._job_locked(p_id);
begin
  return query
  select r.outcome, r.detail || case when current_setting('synchronous_standby_names') <> '' then pawl_v1._unreplicated() else '{}' end
    from pawl_v1._refusal(v_before, '{pending,waiting,processing}', '{}') as r;
  if found then
    return;
  end if;
  perform pawl_v1._job_stop(v_before);
  return query
  select 'cancelled', jsonb_build_object('status', v_before.status)
    || case when v_before.lane_head then pawl_v1._lane_freed(v_before.lane_id, v_before.queue) else '{}' end;
end
$$;

-- job_reschedule moves a job that has not started to another time, earlier or later: p_start_in_ms
-- from now, at most 10 years. Its attempts, its key and its place in its lane stay. While the job
-- that has the turn waits, its lane waits. It is for the application that enqueued the job. The
-- example is under job_cancel_own.
--
-- Outcomes:
--   rescheduled  detail has 'status' (the one before), 'queue' and available_at.
--   refused      It is running, or has ended: detail.status, detail.hint.
--   absent       It finished, was discarded, or never existed.
--
-- Errors:
--   P4004  p_start_in_ms.
--   55P03  As of job_cancel_own.
create or replace function pawl_v1.job_reschedule(p_id bigint, p_start_in_ms bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.job;
  v_after  pawl.job;
begin
  perform pawl_v1._check_int('start_in_ms', p_start_in_ms, 0, 315360000000);
  v_before := pawl_v1._job_locked(p_id);
  return query
  select r.outcome, r.detail || case when current_setting('synchronous_standby_names') <> '' then pawl_v1._unreplicated() else '{}' end
    from pawl_v1._refusal(v_before, '{pending,waiting}', '{}') as r;
  if found then
    return;
  end if;
  update pawl.job as j
     set available_at = clock_timestamp() + p_start_in_ms * interval '1 millisecond',
         fence = j.fence + 1
   where j.id = p_id -- locked since its status was read
  returning j.*
       into v_after;
  if v_after.status = 'pending' and v_after.available_at <= clock_timestamp() then
    perform pawl_v1._wake(array[v_after.queue]);
  end if;
  return query
  select 'rescheduled', jsonb_build_object('status', v_before.status, 'queue', v_before.queue, 'available_at', v_after.available_at);
end
$$;

-- Replaying a delivery by hand. A delivery that took effect does not run again.

-- _replay_look returns everything known of a delivery in one statement.
create or replace function pawl_v1._replay_look(p_consumer text, p_key text)
returns table (seen pawl.inbox, status text, kept pawl.delivery, forgotten boolean)
language sql
set search_path = pg_catalog, pg_temp
as $$
  select i, j.status::text, d,
         exists (select from pawl.audit as a
                  where a.target = pawl_v1._audit_target('inbox', p_consumer, p_key)
                    and a.verb = 'inbox_forget'
                    and a.at >= d.received_at)
    from (select p_consumer as consumer, p_key as key) as k
    left join pawl.inbox as i on i.consumer = k.consumer and i.key = k.key
    left join pawl.job as j on j.id = i.job_id
    left join pawl.delivery as d on d.consumer = k.consumer and d.key = k.key
$$;

-- _replay_store makes a job of a kept delivery, its owner from now on. Null: lost a race.
create or replace function pawl_v1._replay_store(p_seen pawl.inbox, p_kept pawl.delivery)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_how  jsonb := p_kept.stored_as;
  v_id   bigint := nextval('pawl.job_id_seq');
  v_lane bigint;
begin
  if v_how ? 'lane' then -- before the delivery, as in inbox_claim
    v_lane := (pawl_v1._lanes_enter(array[v_how ->> 'queue'], array[v_how ->> 'lane'], v_how))[1];
  end if;
  if p_seen.key is null then
    insert into pawl.inbox as i (consumer, key, hash, job_id)
    values (p_kept.consumer, p_kept.key, p_kept.hash, v_id)
    on conflict do nothing;
  else
    update pawl.inbox as i
       set job_id = v_id
     where i.consumer = p_seen.consumer
       and i.key = p_seen.key
       and i.processed_at is null
       and i.job_id = p_seen.job_id;
  end if;
  if not found then
    return null;
  end if;
  perform pawl_v1._job_insert(v_id, v_how ->> 'queue', v_how ->> 'kind', p_kept.payload,
    jsonb_strip_nulls(jsonb_build_object('max_attempts', v_how -> 'max_attempts'))
      || jsonb_build_object('headers', coalesce(v_how -> 'headers', '{}') || jsonb_build_object('attributes', coalesce(p_kept.headers, '{}'))),
    v_lane);
  return v_id;
end
$$;

-- inbox_replay retries a delivery that has not taken effect, by an operator. It goes through the
-- inbox like every other. Rows that took effect are not touched, and a message that its sender
-- sends meanwhile is a duplicate. It leaves a record in pawl.audit.
--
-- Outcomes:
--   replayed      Its job was a dead letter, cancelled, or waited for its next try. It is due now,
--                 as by job_retry, with a new fence; detail.status is its status before. Or its job
--                 was discarded, or the delivery forgotten (inbox_forget), and it was kept
--                 (delivery_keep): job_id is a new job.
--   would_replay  With dry_run: as replayed, but nothing changed.
--   refused       Nothing changed. detail.hint is the next step. The cases are listed below.
--   absent        The delivery is neither remembered nor kept.
--
-- Cases of refused:
--   it took effect      detail.processed_at. If the effect was taken back, forget the delivery
--                       first.
--   its job is in the way
--                       The job is being processed, or is in another state that retrying refuses:
--                       detail.job, detail.status.
--   no job and no copy  Its job was discarded, and the delivery was not kept.
--   not remembered      It was kept, and is no longer remembered, although no operator forgot it.
--                       It is unknown whether it took effect.
--
-- Errors:
--   55P03                An open transaction has had the job or the delivery for more than 2 s.
--   40001                The delivery changed at each of three looks. Restart the transaction.
--   P4000, P4001, P4004  An argument.
--
-- Options:
--   dry_run  (boolean) Report what would be done.
create or replace function pawl_v1.inbox_replay(
  p_consumer   text,
  p_key text,
  p_actor      text,
  p_reason     text,
  p_options    jsonb default '{}'
)
returns table (outcome text, job_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_dry   boolean := coalesce((p_options ->> 'dry_run')::boolean, false);
  v_look  record;
  v_job   bigint;
  v_retry record;
  v_was   jsonb := '{}';
  v_hint  text;
begin
  perform pawl_v1._check_options(p_options, '{dry_run}');
  perform pawl_v1._check_scope('consumer', p_consumer);
  perform pawl_v1._check_key('key', p_key);
  perform pawl_v1._check_by(p_actor, p_reason);
  for v_try in 1..3 loop
    select l.* into v_look from pawl_v1._replay_look(p_consumer, p_key) as l;
    v_job := (v_look.seen).job_id;
    v_hint := case
      when (v_look.seen).processed_at is not null then
        'it has taken effect; if that was taken back, forget the delivery first'
      when v_look.status is not null then null
      when (v_look.seen).key is null and (v_look.kept).key is null then null
      when (v_look.kept).stored_as is null or (v_look.kept).hash is null then
        'its job was discarded, and it was not kept as it came: have it sent again under another key, or forget it first'
      when (v_look.seen).key is null and not v_look.forgotten then
        'no operator forgot it: it is older than the memory window, and it is unknown whether it took effect'
    end;
    if v_hint is not null then
      return query
      select 'refused', v_job, jsonb_strip_nulls(jsonb_build_object('hint', v_hint, 'processed_at', (v_look.seen).processed_at));
      return;
    end if;
    if (v_look.seen).key is null and (v_look.kept).key is null then
      return query
      select 'absent', null::bigint, '{}'::jsonb;
      return;
    end if;

    if v_look.status is not null then
      if v_dry and v_look.status in ('dead_letter', 'cancelled', 'pending') then
        v_was := jsonb_build_object('status', v_look.status);
      else
        -- Lock the job only: an attempt locks it first. While it exists it owns the delivery.
        select r.* into v_retry from pawl_v1.job_retry(v_job, p_actor, p_reason,
          case when v_dry then '{"from": []}'::jsonb else '{}' end) as r;
        continue when v_retry.outcome = 'absent'; -- the job has ended since
        if v_retry.outcome <> 'retried' then
          return query
          select 'refused', v_job, v_retry.detail || jsonb_build_object('job', v_job);
          return;
        end if;
        v_was := jsonb_build_object('status', v_retry.detail -> 'status');
      end if;
    elsif v_dry then
      v_job := null; -- the former job is gone
    else
      v_job := pawl_v1._replay_store(v_look.seen, v_look.kept);
      continue when v_job is null;
    end if;
    if v_dry then
      return query
      select 'would_replay', v_job, v_was;
      return;
    end if;
    insert into pawl.audit (actor, verb, target, reason, before, after)
    values (p_actor, 'inbox_replay', pawl_v1._audit_target('inbox', p_consumer, p_key), p_reason,
            case when (v_look.seen).key is null then jsonb_build_object('kept_at', (v_look.kept).received_at) else to_jsonb(v_look.seen) end,
            jsonb_build_object('job', v_job) || v_was);
    return query
    select 'replayed', v_job, v_was;
    return;
  end loop;
  raise exception 'message % of consumer % changes all the time', p_key, p_consumer
    using errcode = '40001', hint = 'restart the transaction';
end
$$;

-- A schedule enqueues jobs again and again. Any number of keepers do so at once, each with
--
--   look  view schedules: those that are not paused and whose next_at is null or has come
--   tick  schedule_tick, with the fence it has seen: the jobs and the next tick are one transaction
--
-- A tick is a point in time, so after an outage it is still owed. Intervals are computed here, in
-- absolute time. Cron expressions are read by the keeper, which has a parser. Its ticks are checked
-- here, so that none is lost or made twice.
--
-- The job of a tick has the key 'schedule/NAME/MOMENT', and the headers 'pawl-schedule'
-- and 'pawl-tick' (the moment, in UTC).

-- _schedule_enqueue enqueues the job of one tick. Its key is the schedule and the time, so a tick
-- that comes twice has one job. The hash is that of the key: the payload may have changed.
create or replace function pawl_v1._schedule_enqueue(p_schedule pawl.schedule, p_at timestamptz)
returns table (outcome text, job_id bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_at  text := to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
  v_key text := 'schedule/' || p_schedule.name || '/' || v_at;
begin
  return query
  select e.outcome, e.job_id
    from pawl_v1.job_enqueue(p_schedule.queue, p_schedule.kind, p_schedule.payload,
           p_schedule.options || jsonb_build_object(
             'key', v_key,
             'hash', encode(sha256(convert_to(v_key, 'UTF8')), 'hex'),
             'headers', coalesce(nullif(p_schedule.options -> 'headers', 'null'), '{}')
               || jsonb_build_object('pawl-schedule', p_schedule.name, 'pawl-tick', v_at))) as e;
end
$$;

-- _schedule_record is a schedule as the audit keeps it, with the payload's length and SHA-256.
create or replace function pawl_v1._schedule_record(p_schedule pawl.schedule)
returns jsonb
language sql
stable
return to_jsonb(p_schedule) - 'payload'
  || jsonb_build_object('payload_octets', octet_length(p_schedule.payload), 'payload_sha256', encode(sha256(p_schedule.payload), 'hex'));

-- _schedule_after returns the first tick of an interval's grid after p_now.
create or replace function pawl_v1._schedule_after(p_schedule pawl.schedule, p_now timestamptz)
returns timestamptz
language sql
stable
return p_schedule.next_at
  + (floor(extract(epoch from p_now - p_schedule.next_at) * 1000 / p_schedule.every_ms) + 1)::bigint * p_schedule.every_ms * interval '1 millisecond';

create or replace function pawl_v1._check_schedule(p_name text, p_queue text, p_kind text, p_payload bytea, p_options jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_name is null or octet_length(p_name) not between 1 and 200 then
    raise exception 'the name of a schedule must have 1 to 200 octets, it has %', coalesce(octet_length(p_name), 0)
      using errcode = 'P4000', hint = 'pass the same short name at every call';
  end if;
  perform pawl_v1._check_scope('queue', p_queue);
  perform pawl_v1._check_scope('kind', p_kind);
  perform pawl_v1._check_payload(p_payload);
  perform pawl_v1._check_headers(p_options -> 'headers');
  perform pawl_v1._int_option(p_options, 'priority', 2, 1, 4), pawl_v1._int_option(p_options, 'max_attempts', 25, 1, 1000);
  if p_options ->> 'lane' is not null then
    perform pawl_v1._check_scope('lane', p_options ->> 'lane');
  end if;
  perform pawl_v1._check_lane_policy(coalesce(p_options ->> 'lane_policy', 'block'));
  if (p_options ->> 'cron' is null) = (p_options ->> 'every_ms' is null) then
    raise exception 'a schedule has either the option cron or the option every_ms'
      using errcode = 'P4004';
  end if;
  if p_options ->> 'time_zone' is not null and p_options ->> 'cron' is null then
    raise exception 'an interval has no time zone'
      using errcode = 'P4004', hint = 'it is counted in absolute time; pass cron for a time of day';
  end if;
  if p_options ->> 'cron' is not null then
    perform pawl_v1._check_scope('cron', p_options ->> 'cron');
    perform pawl_v1._check_scope('time_zone', coalesce(p_options ->> 'time_zone', 'UTC'));
  end if;
  if coalesce(p_options ->> 'missed', 'last') not in ('last', 'all') then
    raise exception 'option missed is last or all, not %', p_options ->> 'missed'
      using errcode = 'P4004';
  end if;
end
$$;

-- schedule_put creates a schedule, or changes the one of this name (1 to 200 octets). Call it each
-- time a program starts. If the plan is unchanged, the next tick stays. A tick that is due already
-- is still made, and an interval is counted from it. A new plan begins after now and makes no tick
-- that an earlier plan has made. A paused schedule stays paused.
--
-- If the schedule is due within a second, or a keeper has to read its expression, the commit of
-- your transaction notifies channel 'pawl_jobs'. The payload is 'schedules'. Keepers beside a
-- worker that listens look at once. Others find it at their next poll. next_at is null until a
-- keeper has read the expression.
--
-- Outcomes:
--   created    It is new.
--   changed    It has the given values now.
--   unchanged  It had them already.
--
-- Errors:
--   P4000  A name.
--   P4004  An argument.
--   22007  first_at is no moment.
--   40001  The schedule appeared and disappeared three times. Restart the transaction.
--   55P03  Another transaction has had it for more than 2 s.
--
-- Options:
--   every_ms   (100 to 31536000000) An interval, in absolute time. Give every_ms or 'cron'.
--   cron       (1 to 255 octets) An expression that a keeper reads.
--   time_zone  (1 to 255 octets, default 'UTC') The zone of 'cron'.
--   first_at   (a moment, as text, default after one interval, or the keeper's next tick) The first
--              tick. If it has passed, a created schedule is due at once, and a changed one ticks
--              at the next moment of its grid.
--   missed     ('last' or 'all', default 'last') Which of several ticks that were not made in time:
--              the newest, or all up to the newest 1,000.
--   priority, max_attempts, headers, lane, lane_policy
--              Of each job, as of job_enqueue.
create or replace function pawl_v1.schedule_put(p_name text, p_queue text, p_kind text, p_payload bytea, p_options jsonb)
returns table (outcome text, next_at timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_every  bigint := pawl_v1._int_option(p_options, 'every_ms', null, 100, 31536000000);
  v_now    timestamptz := clock_timestamp();
  v_new    pawl.schedule;
  v_before pawl.schedule;
begin
  perform pawl_v1._check_options(p_options, '{cron,time_zone,every_ms,first_at,missed,priority,max_attempts,headers,lane,lane_policy}');
  perform pawl_v1._check_schedule(p_name, p_queue, p_kind, p_payload, p_options);
  v_new.name := p_name;
  v_new.cron := p_options ->> 'cron';
  v_new.time_zone := case when v_new.cron is not null then coalesce(p_options ->> 'time_zone', 'UTC') end;
  v_new.every_ms := v_every;
  v_new.next_at := coalesce((p_options ->> 'first_at')::timestamptz, v_now + v_every * interval '1 millisecond');
  v_new.missed := coalesce(p_options ->> 'missed', 'last');
  v_new.queue := p_queue;
  v_new.kind := p_kind;
  v_new.payload := p_payload;
  v_new.options := p_options - '{cron,time_zone,every_ms,first_at,missed}'::text[];

  for v_try in 1..3 loop
    insert into pawl.schedule as s (name, next_at, since_at, every_ms, cron, time_zone, missed, queue, kind, payload, options)
    values (v_new.name, v_new.next_at, v_now, v_new.every_ms, v_new.cron, v_new.time_zone, v_new.missed, v_new.queue, v_new.kind,
            v_new.payload, v_new.options)
    on conflict do nothing;
    if found then
      perform pawl_v1._wake_keepers(v_new.next_at);
      return query
      select 'created', v_new.next_at, '{}'::jsonb;
      return;
    end if;
    select s.*
      into v_before
      from pawl.schedule as s
     where s.name = p_name
       for update;
    exit when found;
  end loop;
  if v_before.name is null then
    raise exception 'schedule % keeps appearing and disappearing', p_name
      using errcode = '40001', hint = 'restart the transaction';
  end if;

  -- A due tick is owed under the new plan too.
  if (v_before.cron, v_before.time_zone, v_before.every_ms) is distinct from (v_new.cron, v_new.time_zone, v_new.every_ms)
     and (v_before.paused or coalesce(v_before.next_at > v_now, true)) then
    v_new.since_at := greatest(v_now, v_before.since_at); -- clocks differ after a failover
    -- The old plan may have made ticks since then; their keys may be purged.
    if v_new.next_at <= v_new.since_at then
      v_new.next_at := case when v_every is not null then pawl_v1._schedule_after(v_new, v_new.since_at) end;
    end if;
  else
    v_new.since_at := v_before.since_at;
    v_new.next_at := v_before.next_at;
  end if;
  if (v_before.cron, v_before.time_zone, v_before.every_ms, v_before.missed, v_before.queue, v_before.kind, v_before.payload, v_before.options)
     is not distinct from
     (v_new.cron, v_new.time_zone, v_new.every_ms, v_new.missed, v_new.queue, v_new.kind, v_new.payload, v_new.options) then
    return query
    select 'unchanged', v_before.next_at, '{}'::jsonb;
    return;
  end if;
  update pawl.schedule as s
     set fence = nextval('pawl.fence_seq'),
         next_at = v_new.next_at,
         since_at = v_new.since_at,
         every_ms = v_new.every_ms,
         cron = v_new.cron,
         time_zone = v_new.time_zone,
         missed = v_new.missed,
         queue = v_new.queue,
         kind = v_new.kind,
         payload = v_new.payload,
         options = v_new.options
   where s.name = p_name;
  if not v_before.paused then
    perform pawl_v1._wake_keepers(v_new.next_at);
  end if;
  return query
  select 'changed', v_new.next_at, '{}'::jsonb;
end
$$;

-- schedule_tick enqueues the jobs of due ticks and moves the schedule to its next tick, in one
-- transaction. For an interval pass only the fence, because the ticks are counted here. For an
-- expression pass the ticks that are due and the next one. The ticks are the newest only or all, as
-- 'missed' says, ascending and at most 1,000. With no ticks and a next one, the call only sets the
-- next tick of a schedule without next_at.
--
-- Outcomes:
--   ticked      The column enqueued is the number of jobs. A tick whose key is known has its job
--               already and does not count. detail.skipped is the number of ticks of an interval
--               that were left out.
--   superseded  The schedule has another fence by now, or is paused. Look again.
--   not_due     Its next tick is in the future.
--   absent      It is gone.
--
-- Errors:
--   P4004  For an expression: ticks that are out of order, before the due one or in the future;
--          none although one is due; or no next one. For an interval: any ticks.
--   55P03  An open transaction has had it for more than 0.5 s.
create or replace function pawl_v1.schedule_tick(
  p_name    text,
  p_fence   bigint,
  p_ticks   timestamptz[] default null,
  p_next_at timestamptz default null
)
returns table (outcome text, enqueued int, next_at timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms' -- the other due schedules wait meanwhile
as $$
declare
  v_now      timestamptz := clock_timestamp();
  v_schedule pawl.schedule;
  v_ticks    timestamptz[] := coalesce(p_ticks, '{}');
  v_next     timestamptz := p_next_at;
  v_missed   bigint;
  v_skipped  bigint := 0;
  v_last     timestamptz;
  v_enqueued int;
begin
  select s.*
    into v_schedule
    from pawl.schedule as s
   where s.name = p_name;
  if not found or v_schedule.fence <> p_fence or v_schedule.paused or v_schedule.next_at > v_now then
    return query
    select case
             when v_schedule.name is null then 'absent'
             when v_schedule.fence = p_fence and not v_schedule.paused then 'not_due'
             else 'superseded'
           end, 0, v_schedule.next_at, '{}'::jsonb;
    return;
  end if;

  if v_schedule.every_ms is not null and p_ticks is null and p_next_at is null then
    v_missed := floor(extract(epoch from v_now - v_schedule.next_at) * 1000 / v_schedule.every_ms)::bigint;
    v_skipped := case v_schedule.missed when 'all' then greatest(v_missed - 999, 0) else v_missed end;
    v_ticks := array(
      select v_schedule.next_at + n * v_schedule.every_ms * interval '1 millisecond'
        from generate_series(v_skipped, v_missed) as n);
    v_next := pawl_v1._schedule_after(v_schedule, v_now);
  else
    perform pawl_v1._check_ticks(v_schedule, v_ticks, v_next, v_now);
  end if;
  v_last := v_ticks[cardinality(v_ticks)];

  update pawl.schedule as s
     set fence = nextval('pawl.fence_seq'),
         next_at = v_next,
         since_at = coalesce(v_last, s.since_at),
         last_at = coalesce(v_last, s.last_at)
   where s.name = p_name
     and s.fence = p_fence;
  if not found then
    return query
    select 'superseded', 0, null::timestamptz, '{}'::jsonb;
    return;
  end if;
  select count(*) filter (where e.outcome = 'enqueued')
    into v_enqueued
    from unnest(v_ticks) with ordinality as t (at, n)
   cross join lateral pawl_v1._schedule_enqueue(v_schedule, t.at) as e;
  return query
  select 'ticked', v_enqueued, v_next, case when v_skipped > 0 then jsonb_build_object('skipped', v_skipped) else '{}' end;
end
$$;

-- _check_ticks checks what a keeper passes for a cron schedule. No tick is repeated or lost.
create or replace function pawl_v1._check_ticks(p_schedule pawl.schedule, p_ticks timestamptz[], p_next_at timestamptz, p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_after timestamptz := coalesce(p_schedule.next_at - interval '1 microsecond', p_schedule.since_at);
  v_wrong text;
begin
  perform pawl_v1._check_batch('ticks', coalesce(cardinality(p_ticks), 0), 1000, coalesce(cardinality(p_ticks), 0));
  v_wrong := case
    when p_schedule.every_ms is not null then 'an interval is counted by schedule_tick itself'
    when p_next_at is null then 'the next tick of a cron expression is required'
    when p_schedule.next_at is not null and cardinality(p_ticks) = 0 then 'a tick is due, and none is named'
    when array_position(p_ticks, null) is not null then 'a tick is null'
    when exists (
           select
             from unnest(v_after || p_ticks || p_next_at) with ordinality as t (at, n)
             join unnest(p_ticks || p_next_at) with ordinality as u (at, n) on u.n = t.n
            where u.at <= t.at) then 'ticks must ascend, from the one that is due to the next'
    when p_ticks[cardinality(p_ticks)] > p_now then 'a tick lies in the future'
  end;
  if v_wrong is not null then
    raise exception 'schedule %: %', p_schedule.name, v_wrong
      using errcode = 'P4004', hint = 'read pawl_v1.schedules again';
  end if;
end
$$;

-- _schedule_operate checks a verb's arguments and returns the row locked, or null.
create or replace function pawl_v1._schedule_operate(p_name text, p_actor text, p_reason text)
returns pawl.schedule
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_schedule pawl.schedule;
begin
  perform pawl_v1._check_by(p_actor, p_reason);
  select s.*
    into v_schedule
    from pawl.schedule as s
   where s.name = p_name
     for update;
  return v_schedule;
end
$$;

-- p_after null: deleted.
create or replace function pawl_v1._schedule_audit(p_verb text, p_actor text, p_reason text, p_before pawl.schedule, p_after pawl.schedule)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pawl.audit (actor, verb, target, reason, before, after)
  values (p_actor, p_verb, pawl_v1._audit_target('schedule', (p_before).name), p_reason, pawl_v1._schedule_record(p_before),
          case when (p_after).name is not null then pawl_v1._schedule_record(p_after) end)
$$;

-- schedule_pause stops a schedule. No tick is enqueued until it is resumed, not even one that is
-- due already. Enqueued jobs stay. It leaves a record in pawl.audit, with target 'schedule NAME'.
--
-- Outcomes:
--   paused     Done.
--   unchanged  It was paused. There is no record.
--   absent     There is no such schedule.
--
-- Errors:
--   P4004  Actor or reason.
--   55P03  An open transaction has had it for more than 2 s. Nothing changed.
create or replace function pawl_v1.schedule_pause(p_name text, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.schedule := pawl_v1._schedule_operate(p_name, p_actor, p_reason);
  v_after  pawl.schedule;
begin
  if v_before.name is null or v_before.paused then
    return query
    select case when v_before.paused then 'unchanged' else 'absent' end, '{}'::jsonb;
    return;
  end if;
  update pawl.schedule as s
     set fence = nextval('pawl.fence_seq'),
         paused = true
   where s.name = p_name
  returning s.*
       into v_after;
  perform pawl_v1._schedule_audit('schedule_pause', p_actor, p_reason, v_before, v_after);
  return query
  select 'paused', '{}'::jsonb;
end
$$;

-- schedule_resume lets a schedule continue with its next tick from now on. Ticks that were due
-- meanwhile are dropped, also with missed 'all'. An interval keeps its grid. If the tick of an
-- expression has passed, a keeper computes the next. It notifies keepers as schedule_put does, and
-- leaves a record as schedule_pause does. To make up for a tick, call schedule_run_now.
--
-- Outcomes:
--   resumed    detail.next_at is the next tick. It is absent if a keeper has to compute it.
--   unchanged  It was not paused. There is no record.
--   absent     There is no such schedule.
--
-- Errors:
--   P4004, 55P03  As of schedule_pause.
create or replace function pawl_v1.schedule_resume(p_name text, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.schedule := pawl_v1._schedule_operate(p_name, p_actor, p_reason);
  v_after  pawl.schedule;
  v_now    timestamptz := clock_timestamp();
begin
  if v_before.name is null or not v_before.paused then
    return query
    select case when v_before.name is null then 'absent' else 'unchanged' end, '{}'::jsonb;
    return;
  end if;
  update pawl.schedule as s
     set fence = nextval('pawl.fence_seq'),
         paused = false,
         since_at = greatest(v_now, s.since_at),
         next_at = case
           when s.next_at > v_now then s.next_at
           when s.every_ms is not null then pawl_v1._schedule_after(v_before, v_now)
         end
   where s.name = p_name
  returning s.*
       into v_after;
  perform pawl_v1._schedule_audit('schedule_resume', p_actor, p_reason, v_before, v_after);
  perform pawl_v1._wake_keepers(v_after.next_at);
  return query
  select 'resumed', jsonb_strip_nulls(jsonb_build_object('next_at', v_after.next_at));
end
$$;

-- schedule_run_now enqueues a job now, beside the plan, which stays unchanged. This works for a
-- paused schedule too. Called twice it enqueues two. It leaves a record as schedule_pause does.
--
-- Outcomes:
--   enqueued  detail.job is the job.
--   absent    There is no such schedule.
--
-- Errors:
--   P4004, 55P03  As of schedule_pause.
create or replace function pawl_v1.schedule_run_now(p_name text, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_schedule pawl.schedule := pawl_v1._schedule_operate(p_name, p_actor, p_reason);
  v_job      bigint;
begin
  if v_schedule.name is null then
    return query
    select 'absent', '{}'::jsonb;
    return;
  end if;
  select e.job_id
    into v_job
    from pawl_v1._schedule_enqueue(v_schedule, clock_timestamp()) as e;
  perform pawl_v1._schedule_audit('schedule_run_now', p_actor, p_reason, v_schedule, v_schedule);
  return query
  select 'enqueued', jsonb_build_object('job', v_job);
end
$$;

-- schedule_delete deletes a schedule, and with it the record of its ticks. Jobs that it has
-- enqueued stay. If a program still calls schedule_put, it creates the schedule again. If its
-- first_at has passed, ticks from then on are due again. It leaves a record as schedule_pause does.
--
-- Outcomes:
--   deleted  Done.
--   absent   There is no such schedule.
--
-- Errors:
--   P4004, 55P03  As of schedule_pause.
create or replace function pawl_v1.schedule_delete(p_name text, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.schedule := pawl_v1._schedule_operate(p_name, p_actor, p_reason);
begin
  if v_before.name is null then
    return query
    select 'absent', '{}'::jsonb;
    return;
  end if;
  delete from pawl.schedule as s
   where s.name = p_name;
  perform pawl_v1._schedule_audit('schedule_delete', p_actor, p_reason, v_before, null);
  return query
  select 'deleted', '{}'::jsonb;
end
$$;

-- schedules shows every schedule, without its payload. last_at is the last tick that was made, and
-- no tick up to since_at is owed. If next_at is null, a keeper has to read the expression. The
-- column options has those of its jobs.
create or replace view pawl_v1.schedules as
select s.name,
       s.cron,
       s.time_zone,
       s.every_ms,
       s.missed,
       s.paused,
       s.next_at,
       s.last_at,
       s.since_at,
       s.queue,
       s.kind,
       s.options,
       octet_length(s.payload) as payload_octets,
       s.fence,
       s.created_at
  from pawl.schedule as s;

-- A command takes effect once per key: each call with the key gets the same answer. There are two
-- forms.
--
--   one transaction                        leased
--
--   command_open                           command_claim
--        │ the key is locked,                   │
--        │ no row is written               processing ─ lease over ─┬─ repeatable: new fence
--    your rows                              │   │   │               └─ else: unknown
--        │                     command_fail │   │   │ command_fail, final
--   command_close           failed_retryable    │   failed_final
--        │                   (claim it again)   │ command_succeed
--    succeeded                              succeeded
--
-- In one transaction, your rows and the command's row commit together. An advisory lock holds the
-- key from command_open to the end of the transaction, and the row is written once, at the end. The
-- leased form is for work that must call other systems. Its claim commits alone, so others see the
-- attempt and the end of its lease; command_renew renews it. command_hold begins the transaction
-- that writes your rows and ends with command_succeed.
--
-- command_fail ends an attempt of both forms. An unknown command is ended by its late attempt or by
-- command_settle. In both forms every later call passes the fence.

-- command_open opens a command, in the transaction that does the work and ends it. Call it first.
-- It locks the key until that transaction ends, reads the command, and draws a fence. It writes no
-- row, so a transaction that dies leaves none.
--
-- If the transaction is idle for p_idle_ms milliseconds, the server ends it. Null keeps the limit
-- of the session.
--
-- While the first caller's transaction is uncommitted, others do not see its payload. A second
-- payload then gets 'processing_active', and 'mismatch' once the first has committed. After a
-- rollback without a recorded failure another payload may take the key. Above READ COMMITTED
-- command_close raises 40001 if another transaction ended the command since your snapshot. Restart
-- then.
--
-- The lock is PostgreSQL's advisory lock of the transaction. A ROLLBACK TO a savepoint from before
-- command_open releases it. The primary key is the second guard: of two transactions that end one
-- key, the second is refused with all its rows.
--
-- Your work cannot commit by itself before command_close. For this, command_open declares a cursor
-- WITH HOLD, 'pawl_command_' and the fence, whose query raises an error. COMMIT runs the query of
-- such a cursor. Do not close it yourself (CLOSE ALL), or command_close raises 34000. After a
-- ROLLBACK the writes of your work are not protected, so it must not send one.
--
-- Outcomes:
--   new_claim          The key is yours. Do the work, call command_close with fence and xact, and
--                      commit. Or roll back and call command_fail.
--   retryable_failure  The same. The attempt before failed, and its failure is in the row.
--   replay_success     It is done: the row has the stored answer. Commit before you pass it on.
--   final_failure      It failed for good: the row has the stored failure. Commit before you pass
--                      it on.
--   processing_active  Another attempt runs. While another transaction has the key open, the other
--                      columns may be null. Ask again after retry_after_ms.
--   unknown            An attempt may have taken effect and did not report it. No attempt holds it.
--                      Commit, and find out; then command_settle.
--   mismatch           The key came before with another payload, in any status. detail has
--                      stored_hash and given_hash. Use a new key, or fix the caller.
--
-- Errors:
--   P4002, P4029, P4030, P4031
--          With option 'raise': 'mismatch', 'processing_active', 'final_failure' (DETAIL holds the
--          failure), 'unknown'.
--   P4000, P4001, P4003, P4004
--          An argument.
--   2D000  Raised by COMMIT: the key is yours and the command has no end. All is rolled back. Call
--          command_close or command_fail first.
--   0A000  Raised by PREPARE TRANSACTION, for the same reason.
--   25006  The server is a standby. Ask the primary.
--
-- Options:
--   wait_ms  (0 to 10 min, default 0) How long to wait for another transaction that has the key. It
--            does not wait for leases.
--   raise    (boolean) Raise an error for outcomes with which the caller cannot continue.
create or replace function pawl_v1.command_open(p_scope text, p_key text, p_hash bytea, p_idle_ms int default null, p_options jsonb default '{}')
returns table (
  outcome text, fence bigint, xact text, attempts int, retry_after_ms int, response_status int, response_headers jsonb,
  response_body bytea, result bytea, result_ref_type text, result_ref_id text, failure_code text, failure_message text,
  created_at timestamptz, expires_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_mine boolean;
  v_hash bytea;
  v_idle text;
begin
  -- The check functions are called only if a test fails.
  if (octet_length(p_scope) between 1 and 255 and octet_length(p_key) between 1 and 255 and octet_length(p_hash) = 32
      and p_options - '{wait_ms,raise}'::text[] = '{}') is not true
  then
    perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
            pawl_v1._check_options(p_options, '{wait_ms,raise}');
  end if;
  if p_idle_ms is not null then
    -- PERFORM would run a query.
    v_idle := set_config('idle_in_transaction_session_timeout', p_idle_ms::text, true);
  end if;

  -- Lock, then read with a new snapshot, which sees what the previous holder of the lock committed.
  v_mine := pg_try_advisory_xact_lock(pawl_v1._command_lock(p_scope, p_key));
  if not v_mine and p_options ? 'wait_ms' then
    v_mine := pawl_v1._command_wait(p_scope, p_key, pawl_v1._int_option(p_options, 'wait_ms', 0, 0, 600000)::int);
  end if;
  select c.hash
    into v_hash
    from pawl.command as c
   where c.scope = p_scope
     and c.key = p_key;
  detail := '{}';
  if not found and v_mine then
    outcome := 'new_claim';
    attempts := 1;
    fence := nextval('pawl.fence_seq');
    xact := pawl_v1._command_xact(fence);
    -- See _command_unended.
    execute 'declare pawl_command_' || fence || ' no scroll cursor with hold for select pawl_v1._command_unended(' || fence || ')';
    return next;
    return;
  end if;

  if v_hash <> p_hash then
    outcome := 'mismatch';
  else
    -- A wide row is expensive to read. It may be another row now: test the hash again.
    select case c.status
             when 'succeeded' then 'replay_success'
             when 'failed_final' then 'final_failure'
             when 'processing' then case when c.lease_expires_at > clock_timestamp() then 'processing_active' end
           end, c.fence,
           c.attempts, c.response_status, c.response_headers, c.response_body, c.result, c.result_ref_type, c.result_ref_id,
           c.failure_code, c.failure_message, c.created_at, c.expires_at
      into outcome, fence, attempts, response_status, response_headers, response_body, result, result_ref_type, result_ref_id,
           failure_code, failure_message, created_at, expires_at
      from pawl.command as c
     where c.scope = p_scope
       and c.key = p_key
       and c.hash = p_hash;
    if outcome is null then
      select r.outcome, r.fence, r.attempts, r.failure_code, r.failure_message
        into outcome, fence, attempts, failure_code, failure_message
        from pawl_v1._command_reopen(p_scope, p_key, p_hash, v_mine) as r;
    end if;
  end if;
  if (p_options ->> 'raise')::boolean then
    perform pawl_v1._command_raise(outcome, c, p_hash)
       from (select) as one
       left join pawl.command as c on c.scope = p_scope and c.key = p_key;
  end if;
  case outcome
    when 'retryable_failure' then
      xact := pawl_v1._command_xact(fence);
      execute 'declare pawl_command_' || fence || ' no scroll cursor with hold for select pawl_v1._command_unended(' || fence || ')';
    when 'mismatch' then
      detail := pawl_v1._command_mismatch(v_hash, p_hash);
    when 'processing_active' then
      retry_after_ms := 1000;
    else
      -- On a standby _unreplicated raises 25006.
      if current_setting('synchronous_standby_names') <> '' or pg_is_in_recovery() then
        detail := pawl_v1._unreplicated();
      end if;
  end case;
  return next;
end
$$;

-- _command_xact identifies the transaction and fence that opened a command.
create or replace function pawl_v1._command_xact(p_fence bigint)
returns text
language sql
return pg_current_xact_id()::text || ' ' || p_fence;

-- _command_unended makes COMMIT fail while a command is open. command_open declares a cursor WITH
-- HOLD over it, and COMMIT runs the query of such a cursor. Its error rolls the transaction back.
-- command_close and command_fail close the cursor. PREPARE TRANSACTION raises 0A000.
create or replace function pawl_v1._command_unended(p_fence bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'the command with fence % has no end', p_fence
    using errcode = '2D000',
          hint = 'call command_close or command_fail before COMMIT, or roll back; code that is lent the transaction of a command must not end it';
end
$$;

-- _command_reopen decides for a command without a final response. With the key, it locks the row.
create or replace function pawl_v1._command_reopen(p_scope text, p_key text, p_hash bytea, p_mine boolean)
returns table (outcome text, fence bigint, attempts int, failure_code text, failure_message text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_seen    pawl.command;
  v_outcome text := 'processing_active';
begin
  if p_mine then
    -- A locked row means that an attempt is ending it.
    select c.*
      into v_seen
      from pawl.command as c
     where c.scope = p_scope
       and c.key = p_key
       for update skip locked;
    if found then
      v_outcome := coalesce(pawl_v1._command_standing(v_seen, p_hash), case v_seen.status when 'failed_retryable' then 'retryable_failure' else 'unknown' end);
    end if;
  end if;
  -- The row stays locked and unchanged until command_close or command_fail.
  if v_outcome = 'retryable_failure' then
    v_seen.fence := nextval('pawl.fence_seq');
    v_seen.attempts := v_seen.attempts + 1;
  -- Its lease has ended and its effect is not known.
  elsif v_outcome = 'unknown' and v_seen.status = 'processing' then
    v_seen := pawl_v1._command_take(v_seen, 'unknown', '{}');
  end if;
  return query
  select v_outcome, v_seen.fence, v_seen.attempts::int, v_seen.failure_code::text, v_seen.failure_message::text;
end
$$;

-- command_close completes command_open. Call it as the last statement before COMMIT. It writes the
-- successful command with its answer, once. p_fence and p_xact are those that command_open
-- returned. Result and body have at most 4 MiB each. Each error aborts your transaction.
--
-- Outcomes:
--   succeeded  The command has succeeded once you commit.
--
-- Errors:
--   25000  Your work has ended the transaction in which the command was opened. Its later commits
--          are durable: call command_fail with 'unknown'.
--   34000  Your work has closed the cursor of command_open.
--   P4020  A newer attempt has the command, or it has ended. DETAIL as of command_renew.
--   40001  Above READ COMMITTED: another transaction ended it since your snapshot. Restart the
--          transaction.
--   P4004  An argument.
--
-- Options:
--   retention_ms      (1 s to 10 years, default 24 h) How long the command is remembered, from now.
--   response_status   (100 to 999, default none) Part of the answer.
--   response_headers  (object, default none) Part of the answer.
--   result_ref_type, result_ref_id
--                     (1 to 255 octets, default none) The object that was made.
create or replace function pawl_v1.command_close(
  p_scope         text,
  p_key           text,
  p_hash          bytea,
  p_fence         bigint,
  p_xact          text,
  p_result        bytea default null,
  p_response_body bytea default null,
  p_options       jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_open refcursor := 'pawl_command_' || p_fence;
begin
  if (p_xact = pg_current_xact_id_if_assigned()::text || ' ' || p_fence) is not true then
    raise exception 'the transaction in which command % of scope % was opened has ended', p_key, p_scope
      using errcode = '25000', hint = 'code that is lent the transaction of a command must not commit or roll back';
  end if;
  if (p_options = '{}' and greatest(octet_length(p_result), octet_length(p_response_body), 0) <= 4194304) is not true then
    perform pawl_v1._command_check_answer(p_result, p_response_body, p_options,
              '{retention_ms,response_status,response_headers,result_ref_type,result_ref_id}');
  end if;
  insert into pawl.command as c (scope, key, hash, fence, expires_at, status, result, response_body, response_status,
                                 response_headers, result_ref_type, result_ref_id)
  values (p_scope, p_key, p_hash, p_fence, pawl_v1._command_memory(p_options), 'succeeded', p_result, p_response_body,
          case when p_options ? 'response_status' then pawl_v1._int_option(p_options, 'response_status', null, 100, 999) end,
          nullif(p_options -> 'response_headers', 'null'), p_options ->> 'result_ref_type', p_options ->> 'result_ref_id')
  on conflict do nothing;
  if not found then
    -- Replace a retryable failure. Its row is locked since command_open.
    update pawl.command as c
       set status = 'succeeded',
           fence = p_fence,
           attempts = c.attempts + 1,
           updated_at = clock_timestamp(),
           expires_at = pawl_v1._command_memory(p_options),
           result = p_result,
           response_status = case
             when p_options ? 'response_status' then pawl_v1._int_option(p_options, 'response_status', null, 100, 999)
           end,
           response_headers = nullif(p_options -> 'response_headers', 'null'),
           response_body = p_response_body,
           result_ref_type = p_options ->> 'result_ref_type',
           result_ref_id = p_options ->> 'result_ref_id',
           failure_code = null,
           failure_message = null
     where c.scope = p_scope
       and c.key = p_key
       and c.hash = p_hash
       and c.status = 'failed_retryable'
       and c.fence < p_fence;
    if not found then
      perform pawl_v1._command_refuse(p_scope, p_key, p_fence);
    end if;
  end if;
  begin
    close v_open; -- COMMIT may succeed from here on
  exception
    when invalid_cursor_name then -- the work has executed CLOSE ALL
      null;
  end;
  outcome := 'succeeded';
  detail := '{}';
  return next;
end
$$;

create or replace function pawl_v1._command_check_answer(p_result bytea, p_response_body bytea, p_options jsonb, p_known text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
begin
  perform pawl_v1._check_options(p_options, p_known), pawl_v1._check_headers(p_options -> 'response_headers'),
          pawl_v1._check_int('the length of the result', coalesce(octet_length(p_result), 0), 0, 4194304),
          pawl_v1._check_int('the length of the response', coalesce(octet_length(p_response_body), 0), 0, 4194304);
end
$$;

-- command_claim claims a command under a lease, in its own transaction. A plain read answers a
-- finished command, with no lock, no write and no wait. Claims of one key run one at a time, under
-- an advisory lock that lasts until the transaction ends.
--
-- Outcomes:
--   new_claim          You hold it. Do the work, then call command_succeed or command_fail with
--                      this fence.
--   retryable_failure  The attempt before failed, and its failure is in the row. You hold it, with
--                      a new fence.
--   processing_stale   The lease of the attempt before has ended, and 'repeatable' is true. You
--                      hold it, with a new fence.
--   replay_success     It is done: the row has the stored answer. Commit before you pass it on.
--   final_failure      It failed for good: the row has the stored failure. Commit before you pass
--                      it on.
--   processing_active  Another attempt runs. detail.claimed_by names its owner, if the claim gave
--                      one. While a transaction is claiming or ending it, the other columns may be
--                      null. Ask again after retry_after_ms.
--   unknown            The attempt before may have taken effect and did not report it. No attempt
--                      holds it. Find out; then command_settle.
--   mismatch           The key came before with another payload, as of command_open. Use a new key,
--                      or fix the caller.
--
-- Errors:
--   P4002, P4029, P4030, P4031
--          With option 'raise': 'mismatch', 'processing_active', 'final_failure' (DETAIL holds the
--          failure), 'unknown'.
--   55P03  Another transaction has been inserting or purging the row for more than 2 s. As
--          'processing_active'.
--   40001  Restart the transaction.
--   P4000, P4001, P4003, P4004
--          An argument.
--
-- Options:
--   lease_ms      (1 s to 12 h, default 300 s) How long it is yours without a renewal.
--   wait_ms       (0 to 10 min, default 0) How long to wait for the transaction of another claim.
--                 It does not wait for leases.
--   retention_ms  (1 s to 10 years, default 24 h) How long the finished command is remembered, from
--                 its end.
--   repeatable    (boolean) Running it again after an attempt stopped renewing is safe, because all
--                 its writes commit together with command_succeed. Without it such a command
--                 becomes 'unknown'.
--   claimed_by    (1 to 255 octets, default none) For people.
--   raise         (boolean) Raise an error for outcomes with which the caller cannot continue.
create or replace function pawl_v1.command_claim(p_scope text, p_key text, p_hash bytea, p_options jsonb default '{}')
returns table (
  outcome text, fence bigint, attempts int, lease_expires_at timestamptz, retry_after_ms int, response_status int,
  response_headers jsonb, response_body bytea, result bytea, result_ref_type text, result_ref_id text, failure_code text,
  failure_message text, created_at timestamptz, expires_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_seen    pawl.command;
  v_outcome text;
  v_wait    int;
  v_locked  boolean := false;
begin
  -- The checks cost as much as the claim, so they are called only if a test fails.
  if (octet_length(p_scope) between 1 and 255 and octet_length(p_key) between 1 and 255 and octet_length(p_hash) = 32
      and p_options - '{lease_ms,wait_ms,retention_ms,repeatable,claimed_by,raise}'::text[] = '{}') is not true
  then
    perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
            pawl_v1._check_options(p_options, '{lease_ms,wait_ms,retention_ms,repeatable,claimed_by,raise}');
  end if;

  for v_try in 1..4 loop
    -- Most responses come from here, without a lock or a write.
    select c.*
      into v_seen
      from pawl.command as c
     where c.scope = p_scope
       and c.key = p_key;
    if found then
      v_outcome := pawl_v1._command_standing(v_seen, p_hash);
      exit when v_outcome is not null;
    end if;

    -- With the lock, concurrent claims learn at once that the key is taken, instead of waiting in
    -- INSERT. Fences are drawn in the order in which the key is held.
    if not v_locked then
      v_locked := pg_try_advisory_xact_lock(pawl_v1._command_lock(p_scope, p_key));
      if not v_locked then
        v_wait := pawl_v1._int_option(p_options, 'wait_ms', 0, 0, 600000);
        v_locked := pawl_v1._command_wait(p_scope, p_key, v_wait);
        continue when v_locked; -- the other transaction may have ended the command
        v_outcome := 'processing_active';
        exit;
      end if;
    end if;

    if v_seen.key is null then
      insert into pawl.command as c (scope, key, hash, claimed_by, lease_expires_at, expires_at)
      values (p_scope, p_key, p_hash, p_options ->> 'claimed_by', pawl_v1._command_lease(p_options), pawl_v1._command_memory(p_options))
      on conflict do nothing
      returning c.*
           into v_seen;
      if found then
        v_outcome := 'new_claim';
        exit;
      end if;
      continue;
    end if;

    -- A locked row means that an attempt is ending it, or a purge.
    select c.*
      into v_seen
      from pawl.command as c
     where c.scope = p_scope
       and c.key = p_key
       for update skip locked;
    if not found then
      v_outcome := 'processing_active';
      exit;
    end if;
    v_outcome := pawl_v1._command_standing(v_seen, p_hash);
    if v_outcome is null then
      -- A silent attempt may have taken effect. It runs again only if that is safe.
      v_outcome := case
        when v_seen.status = 'failed_retryable' then 'retryable_failure'
        when (p_options ->> 'repeatable')::boolean then 'processing_stale'
        else 'unknown'
      end;
      v_seen := pawl_v1._command_take(v_seen, v_outcome, p_options);
    end if;
    exit;
  end loop;

  if v_outcome is null then
    raise exception 'command % of scope % keeps appearing and disappearing', p_key, p_scope
      using errcode = '40001', hint = 'restart the transaction';
  end if;
  if (p_options ->> 'raise')::boolean then
    perform pawl_v1._command_raise(v_outcome, v_seen, p_hash);
  end if;
  if v_outcome = 'mismatch' then
    return query
    select v_outcome, null::bigint, null::int, null::timestamptz, null::int, null::int, null::jsonb, null::bytea, null::bytea, null::text,
           null::text, null::text, null::text, null::timestamptz, null::timestamptz, pawl_v1._command_mismatch(v_seen.hash, p_hash);
    return;
  end if;
  return query
  select v_outcome, v_seen.fence, v_seen.attempts::int, v_seen.lease_expires_at,
         case v_outcome when 'processing_active' then 1000 end,
         v_seen.response_status::int, v_seen.response_headers, v_seen.response_body::bytea, v_seen.result::bytea,
         v_seen.result_ref_type::text, v_seen.result_ref_id::text, v_seen.failure_code::text, v_seen.failure_message::text,
         v_seen.created_at, v_seen.expires_at,
         case
           when v_outcome = 'processing_active' and v_seen.claimed_by is not null
           then jsonb_build_object('claimed_by', v_seen.claimed_by)
           when v_outcome in ('replay_success', 'final_failure', 'unknown') and current_setting('synchronous_standby_names') <> ''
           then pawl_v1._unreplicated()
           else '{}'
         end;
end
$$;

-- _command_misfit reports a status that only a later version knows.
create or replace function pawl_v1._command_misfit(p_seen pawl.command)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'key % of scope % is %, which this version does not know', p_seen.key, p_seen.scope, p_seen.status
    using errcode = 'P4099';
end
$$;

-- _command_mismatch returns the detail of a mismatch. It waits for replication.
create or replace function pawl_v1._command_mismatch(p_stored bytea, p_given bytea)
returns jsonb
language sql
return jsonb_build_object('stored_hash', encode(p_stored, 'hex'), 'given_hash', encode(p_given, 'hex'))
  || case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unreplicated() end;

-- _command_standing returns the outcome of a row for a new claim, or null if the key may be
-- claimed. The payload is compared first, also while the first attempt runs.
create or replace function pawl_v1._command_standing(p_seen pawl.command, p_hash bytea)
returns text
language sql
return case
  when p_seen.key is null then null
  when p_seen.hash <> p_hash then 'mismatch'
  when p_seen.status = 'succeeded' then 'replay_success'
  when p_seen.status = 'failed_final' then 'final_failure'
  when p_seen.status = 'unknown' then 'unknown'
  when p_seen.status = 'failed_retryable' then null
  when p_seen.status <> 'processing' then pawl_v1._command_misfit(p_seen)
  when p_seen.lease_expires_at > clock_timestamp() then 'processing_active'
end;

create or replace function pawl_v1._command_lock(p_scope text, p_key text)
returns bigint
language sql
immutable
-- int || text is only stable: with it the function would not be inlined.
return hashtextextended(octet_length(p_scope)::text || ':' || p_scope || p_key, 1885435758);

-- _command_wait waits up to p_ms for the lock of a key and reports whether it has it.
create or replace function pawl_v1._command_wait(p_scope text, p_key text, p_ms int)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  if p_ms = 0 then -- lock_timeout 0 waits for ever
    return false;
  end if;
  perform set_config('lock_timeout', p_ms::text, true);
  perform pg_advisory_xact_lock(pawl_v1._command_lock(p_scope, p_key));
  return true;
exception
  when lock_not_available then
    return false;
end
$$;

create or replace function pawl_v1._command_lease(p_options jsonb)
returns timestamptz
language sql
return clock_timestamp() + pawl_v1._ms_option(p_options, 'lease_ms', 300000, 1000, 43200000);

create or replace function pawl_v1._command_memory(p_options jsonb)
returns timestamptz
language sql
return clock_timestamp() + pawl_v1._ms_option(p_options, 'retention_ms', 86400000, 1000, 315360000000);

-- _command_take claims a command that is not held, or marks it unknown. The row is locked.
create or replace function pawl_v1._command_take(p_seen pawl.command, p_outcome text, p_options jsonb)
returns pawl.command
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_taken pawl.command;
begin
  if p_outcome = 'unknown' then
    update pawl.command as c
       set status = 'unknown',
           updated_at = clock_timestamp()
     where c.scope = p_seen.scope
       and c.key = p_seen.key
    returning c.*
         into v_taken;
    return v_taken;
  end if;
  update pawl.command as c
     set status = 'processing',
         fence = nextval('pawl.fence_seq'),
         attempts = c.attempts + 1,
         claimed_by = p_options ->> 'claimed_by',
         lease_expires_at = pawl_v1._command_lease(p_options),
         updated_at = clock_timestamp()
   where c.scope = p_seen.scope
     and c.key = p_seen.key
  returning c.*
       into v_taken;
  return v_taken;
end
$$;

-- _command_raise raises the outcomes covered by option raise and returns for the others.
create or replace function pawl_v1._command_raise(p_outcome text, p_seen pawl.command, p_hash bytea)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  case p_outcome
    when 'mismatch' then
      raise exception 'key % of scope % came before with a different payload', p_seen.key, p_seen.scope
        using errcode = 'P4002',
              detail = json_build_object('stored_hash', encode(p_seen.hash, 'hex'), 'given_hash', encode(p_hash, 'hex')),
              hint = 'use a new key for a new intent, or fix the caller that changes its payload between retries';
    when 'processing_active' then
      raise exception 'the command is being processed now'
        using errcode = 'P4029', detail = json_build_object('retry_after', 1), hint = 'retry after retry_after seconds';
    when 'final_failure' then
      raise exception 'command % of scope % failed for good: %', p_seen.key, p_seen.scope, p_seen.failure_message
        using errcode = 'P4030',
              detail = json_build_object('code', p_seen.failure_code, 'error', p_seen.failure_message, 'attempts', p_seen.attempts),
              hint = 'a retry needs a new key';
    when 'unknown' then
      raise exception 'command % of scope % may have taken effect', p_seen.key, p_seen.scope
        using errcode = 'P4031', hint = 'find out, then settle it with command_settle';
    else
      null;
  end case;
end
$$;

-- _command_refuse raises P4020. DETAIL: absent, rolled_back (the claim's transaction did not
-- commit), superseded (by a newer attempt), or the status in which this attempt ended.
create or replace function pawl_v1._command_refuse(p_scope text, p_key text, p_fence bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_seen   pawl.command;
  v_detail text;
begin
  select c.*
    into v_seen
    from pawl.command as c
   where c.scope = p_scope
     and c.key = p_key;
  v_detail := case
    when v_seen.key is null then 'absent'
    when v_seen.fence > p_fence then 'superseded'
    when v_seen.fence = p_fence then v_seen.status
    else 'rolled_back'
  end;
  raise exception 'command % of scope % is not held with fence %', p_key, p_scope, coalesce(p_fence::text, 'null')
    using errcode = 'P4020',
          detail = v_detail,
          hint = 'drop this attempt, and claim again to read the answer';
end
$$;

-- command_hold locks a leased command's row and checks the fence. Call it first in the transaction
-- that writes and ends the command: a stale attempt then stops before it writes. No other attempt
-- can take over while the transaction is open.
--
-- Outcomes:
--   held  The row is locked until this transaction ends.
--
-- Errors:
--   P4020  You no longer hold it. DETAIL as of command_renew.
--   55P03  Another transaction has had the row for more than 2 s. The state is not known yet.
create or replace function pawl_v1.command_hold(p_scope text, p_key text, p_fence bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_seen pawl.command;
begin
  select c.*
    into v_seen
    from pawl.command as c
   where c.scope = p_scope
     and c.key = p_key
     for update;
  if (v_seen.status in ('processing', 'unknown') and v_seen.fence = p_fence) is not true then
    perform pawl_v1._command_refuse(p_scope, p_key, p_fence);
  end if;
  return query
  select 'held', '{}'::jsonb;
end
$$;

-- command_renew renews the lease of a command. Call it at a third of the lease. If the lease has
-- ended and no other attempt has taken the command since, you hold it again.
--
-- Outcomes:
--   renewed  The lease ends at lease_expires_at.
--
-- Errors:
--   P4020  You no longer hold it. DETAIL is 'absent', 'superseded', 'rolled_back' (the transaction
--          of the claim did not commit), or the status in which this attempt has ended.
--   55P03  As of command_hold.
--   P4004  An argument.
--
-- Options:
--   lease_ms  (1 s to 12 h, default 300 s) The new lease, from now.
create or replace function pawl_v1.command_renew(p_scope text, p_key text, p_fence bigint, p_options jsonb default '{}')
returns table (outcome text, lease_expires_at timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_until timestamptz;
begin
  perform pawl_v1._check_options(p_options, '{lease_ms}');
  update pawl.command as c
     set status = 'processing',
         lease_expires_at = clock_timestamp()
           + pawl_v1._int_option(p_options, 'lease_ms', 300000, 1000, 43200000) * interval '1 millisecond',
         updated_at = clock_timestamp()
   where c.scope = p_scope
     and c.key = p_key
     and c.status in ('processing', 'unknown')
     and c.fence = p_fence
  returning c.lease_expires_at
       into v_until;
  if not found then
    perform pawl_v1._command_refuse(p_scope, p_key, p_fence);
  end if;
  return query
  select 'renewed', v_until, '{}'::jsonb;
end
$$;

-- command_succeed ends a leased command with success, in the transaction of its rows, and stores
-- the answer. Result and body have at most 4 MiB each. It is never accepted twice. The memory that
-- command_claim was given counts from now. An error aborts your transaction, so an attempt that no
-- longer holds the command leaves no rows.
--
-- Outcomes:
--   succeeded  The command has succeeded once you commit.
--
-- Errors:
--   P4020  You no longer hold it. DETAIL as of command_renew. Drop this attempt, and claim again to
--          read the answer.
--   55P03  As of command_hold.
--   P4004  An argument.
--
-- Options:
--   response_status, response_headers, result_ref_type, result_ref_id
--             As of command_close.
create or replace function pawl_v1.command_succeed(
  p_scope         text,
  p_key           text,
  p_fence         bigint,
  p_result        bytea default null,
  p_response_body bytea default null,
  p_options       jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  perform pawl_v1._command_check_answer(p_result, p_response_body, p_options, '{response_status,response_headers,result_ref_type,result_ref_id}');
  update pawl.command as c
     set status = 'succeeded',
         lease_expires_at = null,
         updated_at = clock_timestamp(),
         expires_at = clock_timestamp() + (c.expires_at - c.created_at),
         result = p_result,
         response_status = case
           when p_options ? 'response_status' then pawl_v1._int_option(p_options, 'response_status', null, 100, 999)
         end,
         response_headers = nullif(p_options -> 'response_headers', 'null'),
         response_body = p_response_body,
         result_ref_type = p_options ->> 'result_ref_type',
         result_ref_id = p_options ->> 'result_ref_id',
         failure_code = null,
         failure_message = null
   where c.scope = p_scope
     and c.key = p_key
     and c.status in ('processing', 'unknown')
     and c.fence = p_fence;
  if not found then
    perform pawl_v1._command_refuse(p_scope, p_key, p_fence);
  end if;
  return query
  select 'succeeded', '{}'::jsonb;
end
$$;

-- command_fail records the failure of an attempt. Call it in the transaction that opened the
-- command, after rolling back to a savepoint set after command_open. No other transaction can claim
-- the command in between. If that transaction is lost, or the command is leased, call it in its own
-- transaction. Recording a failure twice is no error.
--
-- If there is no row, it inserts one as failed. If another transaction has the key open, it waits
-- for its end. p_error is {"error": text, "code": text}, of which 4,000 and 60 characters are kept.
--
-- Outcomes:
--   failed_retryable  The next claim may run it.
--   failed_final      With 'final': the failure is the answer from now on.
--   unknown           With 'unknown': it may have taken effect.
--
-- Errors:
--   P4020  Another attempt has the key, or it has ended. No row was written. Claim again to read
--          the answer.
--   P4000, P4001, P4003, P4004
--          An argument, or a fence that was never issued.
--   55P03  Another transaction has had the key open for more than 2 s.
--   40001  Restart the transaction.
--
-- Options:
--   final         (boolean) The failure is the answer from now on.
--   unknown       (boolean) The attempt may have taken effect.
--   retention_ms  (1 s to 10 years, default 24 h) As of command_close, for a row that is inserted.
create or replace function pawl_v1.command_fail(
  p_scope   text,
  p_key     text,
  p_fence   bigint,
  p_hash    bytea,
  p_error   jsonb,
  p_options jsonb default '{}'
)
returns table (outcome text, attempts int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_status text := case
    when (p_options ->> 'unknown')::boolean then 'unknown'
    when (p_options ->> 'final')::boolean then 'failed_final'
    else 'failed_retryable'
  end;
  v_seen   pawl.command;
  v_locked boolean := false;
  v_unreplicated jsonb := '{}';
  v_open   refcursor := 'pawl_command_' || p_fence;
begin
  perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
          pawl_v1._check_options(p_options, '{final,unknown,retention_ms}');
  perform pawl_v1._command_check_fence(p_fence);

  for v_try in 1..4 loop
    -- This attempt holds the row, or was rolled back over an older failure, which is still there.
    update pawl.command as c
       set status = v_status,
           fence = p_fence,
           attempts = c.attempts + case when c.fence < p_fence then 1 else 0 end,
           lease_expires_at = case v_status when 'unknown' then coalesce(c.lease_expires_at, clock_timestamp()) end,
           updated_at = clock_timestamp(),
           expires_at = case v_status when 'failed_final' then clock_timestamp() + (c.expires_at - c.created_at) else c.expires_at end,
           failure_code = pawl_v1._command_code(p_error),
           failure_message = left(p_error ->> 'error', 4000)
     where c.scope = p_scope
       and c.key = p_key
       and c.hash = p_hash
       and (c.status in ('processing', 'unknown') and c.fence = p_fence
            or c.status = 'failed_retryable' and c.fence < p_fence)
    returning c.*
         into v_seen;
    exit when found;

    -- Another transaction may have opened the key without a row yet. Wait for its end.
    if not v_locked then
      perform pg_advisory_xact_lock(pawl_v1._command_lock(p_scope, p_key));
      v_locked := true;
      continue;
    end if;
    insert into pawl.command as c (scope, key, hash, fence, lease_expires_at, expires_at, status, failure_code, failure_message)
    values (p_scope, p_key, p_hash, p_fence, case v_status when 'unknown' then clock_timestamp() end,
            pawl_v1._command_memory(p_options), v_status, pawl_v1._command_code(p_error), left(p_error ->> 'error', 4000))
    on conflict do nothing
    returning c.*
         into v_seen;
    exit when found;

    select c.*
      into v_seen
      from pawl.command as c
     where c.scope = p_scope
       and c.key = p_key;
    -- Reported before.
    if v_seen.fence = p_fence and v_seen.status in ('failed_retryable', 'failed_final') then
      if current_setting('synchronous_standby_names') <> '' then
        v_unreplicated := pawl_v1._unreplicated();
      end if;
      exit;
    end if;
    if v_seen.key is not null and (v_seen.fence > p_fence or v_seen.status <> 'failed_retryable') then
      perform pawl_v1._command_refuse(p_scope, p_key, p_fence);
    end if;
    v_seen := null; -- the row changed in between: try again
  end loop;
  if v_seen.key is null then
    raise exception 'command % of scope % keeps changing', p_key, p_scope
      using errcode = '40001', hint = 'restart the transaction';
  end if;
  -- It was opened in this transaction, which may commit from here on.
  if exists (select from pg_cursors as o where o.name = v_open::text) then
    close v_open;
  end if;
  return query
  select v_seen.status::text, v_seen.attempts::int, v_unreplicated;
end
$$;

-- _command_check_fence refuses a fence that was never issued: it would exceed all future ones.
create or replace function pawl_v1._command_check_fence(p_fence bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if (p_fence between 1 and coalesce(pg_sequence_last_value('pawl.fence_seq'), 0)) is not true then
    raise exception 'fence % was never issued', coalesce(p_fence::text, 'null')
      using errcode = 'P4004', hint = 'pass the fence that the claim returned';
  end if;
end
$$;

create or replace function pawl_v1._command_code(p_error jsonb)
returns text
language sql
immutable
return nullif(left(p_error ->> 'code', 60), '');

-- Commands over time: purge, verdicts on unknown outcomes, counts, views.

-- command_purge deletes finished commands whose memory has ended, at most p_limit (1 to 100,000).
-- Commands that are 'processing', 'unknown' or 'failed_retryable' are never deleted by age. Until
-- it is purged, a command is answered as before.
--
-- Outcomes:
--   purged  The column purged is the number of rows. detail.next as of job_key_purge.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   older_than_ms  (0 to 10 years, default 24 h) Skip commands created since. The call reads no
--                  further, so raise it to the shortest retention_ms in use.
--   since          (timestamp) As of job_key_purge.
create or replace function pawl_v1.command_purge(p_limit int default 10000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- walk the age index in order: docs/decisions/0036-purging.md
set enable_sort = off
set enable_seqscan = off
as $$
declare
  v_before timestamptz := pawl_v1._before(pawl_v1._int_option(p_options, 'older_than_ms', 86400000, 0, 315360000000));
  v_due    tid[];
  v_next   timestamptz;
  v_purged int;
begin
  perform pawl_v1._check_options(p_options, '{older_than_ms,since}');
  if p_limit is null or p_limit not between 1 and 100000 then
    raise exception 'limit must lie between 1 and 100000, it is %', coalesce(p_limit::text, 'null')
      using errcode = 'P4004';
  end if;
  select array_agg(d.ctid), max(d.created_at) -- ctids: see job_key_purge
    into v_due, v_next
    from (
      select c.ctid, c.created_at
        from pawl.command as c
       where c.created_at < v_before
         and c.created_at >= pawl_v1._since(p_options)
         and c.expires_at < clock_timestamp()
         and c.status in ('succeeded', 'failed_final')
       order by c.created_at
       limit p_limit
         for update skip locked
    ) as d;
  delete from pawl.command as c
   where c.ctid = any (v_due)
     and c.expires_at < clock_timestamp()
     and c.status in ('succeeded', 'failed_final');
  get diagnostics v_purged = row_count;
  return query
  select 'purged', v_purged, jsonb_strip_nulls(jsonb_build_object('next', v_next));
end
$$;

-- command_settle ends an unknown command by a verdict, after you found out whether it took effect.
-- p_fence is the command's fence when you found out, as in stale_commands. The verdict covers the
-- attempts up to that one. The attempt that stopped renewing is refused from now on. It leaves a
-- record in pawl.audit.
--
-- Values of p_verdict:
--   executed      It took effect: the command has succeeded. The options are the answer.
--   not_executed  It did not: the next claim may run it.
--
-- Outcomes:
--   settled  detail.status is the status now.
--   refused  It is not unknown: detail.status.
--   moved    Another attempt has begun since: detail.fence. Find out again.
--   absent   There is no such command.
--
-- Errors:
--   P4004  Fence, verdict, actor, reason or an option.
--   55P03  The row was locked for 2 s.
--
-- Options:
--   result, result_ref_type, result_ref_id
--             (text) The answer, if it was executed.
create or replace function pawl_v1.command_settle(
  p_scope   text,
  p_key     text,
  p_fence   bigint,
  p_verdict text,
  p_actor   text,
  p_reason  text,
  p_options jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.command;
  v_after  pawl.command;
begin
  perform pawl_v1._check_options(p_options, '{result,result_ref_type,result_ref_id}');
  if p_verdict is null or p_verdict not in ('executed', 'not_executed') then
    raise exception 'the verdict is executed or not_executed, not %', coalesce(p_verdict, 'null')
      using errcode = 'P4004';
  end if;
  if (octet_length(p_actor) between 1 and 255 and octet_length(p_reason) between 1 and 4000) is not true then
    raise exception 'actor must have 1 to 255 octets and reason 1 to 4000'
      using errcode = 'P4004', hint = 'pass who is doing this, and why';
  end if;
  perform pawl_v1._check_fence_seen(p_fence);
  select c.*
    into v_before
    from pawl.command as c
   where c.scope = p_scope
     and c.key = p_key
     for update;
  if v_before.status is distinct from 'unknown' then
    return query
    select case when v_before.key is null then 'absent' else 'refused' end,
           jsonb_strip_nulls(jsonb_build_object('status', v_before.status));
    return;
  end if;
  if v_before.fence <> p_fence then
    return query
    select 'moved', jsonb_build_object('status', v_before.status, 'fence', v_before.fence);
    return;
  end if;
  update pawl.command as c
     set status = case p_verdict when 'executed' then 'succeeded' else 'failed_retryable' end,
         fence = nextval('pawl.fence_seq'),
         lease_expires_at = null,
         updated_at = clock_timestamp(),
         expires_at = clock_timestamp() + (c.expires_at - c.created_at),
         result = case p_verdict when 'executed' then convert_to(p_options ->> 'result', 'UTF8') end,
         result_ref_type = case p_verdict when 'executed' then p_options ->> 'result_ref_type' end,
         result_ref_id = case p_verdict when 'executed' then p_options ->> 'result_ref_id' end
   where c.scope = p_scope -- locked since its status was read
     and c.key = p_key
  returning c.*
       into v_after;
  insert into pawl.audit (actor, verb, target, reason, before, after)
  values (p_actor, 'command_settle', pawl_v1._audit_target('command', p_scope, p_key), p_reason,
          pawl_v1._command_record(v_before), pawl_v1._command_record(v_after));
  return query
  select 'settled', jsonb_build_object('status', v_after.status);
end
$$;

-- _command_record is a command as the audit keeps it, with lengths in place of the response.
create or replace function pawl_v1._command_record(p_command pawl.command)
returns jsonb
language sql
stable
return to_jsonb(p_command) - '{result,response_body,response_headers}'::text[]
  || jsonb_build_object('result_octets', octet_length((p_command).result), 'response_octets', octet_length((p_command).response_body));

-- command_replayed adds to the counts of replayed answers. A replay writes no row, so the client
-- counts its replays and reports them from time to time. View suppression_by_scope shows them.
--
-- Outcomes:
--   counted  Done.
--
-- Errors:
--   P4004  An argument.
--   55P03  A row was locked for 2 s.
create or replace function pawl_v1.command_replayed(p_scopes text[], p_counts bigint[])
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  perform pawl_v1._check_batch('scopes', coalesce(cardinality(p_scopes), 0), 10000, coalesce(cardinality(p_counts), 0));
  insert into pawl.replay as r (scope, replays)
  select g.scope, sum(g.replays)
    from unnest(p_scopes, p_counts) as g (scope, replays)
   group by g.scope
   order by g.scope collate "C"
  on conflict (scope) do update
     set replays = r.replays + excluded.replays,
         updated_at = clock_timestamp();
  return query
  select 'counted', '{}'::jsonb;
end
$$;

-- replay_purge deletes the counts of scopes that have no command any more and got no report for
-- p_older_than_ms, at most p_limit (1 to 100,000).
--
-- Outcomes:
--   purged  The column purged is the number of rows.
--
-- Errors:
--   P4004  An argument.
create or replace function pawl_v1.replay_purge(p_older_than_ms bigint, p_limit int default 1000)
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_before timestamptz := pawl_v1._before(p_older_than_ms);
  v_purged int;
begin
  perform pawl_v1._check_int('limit', p_limit, 1, 100000);
  with due as (
    select r.scope
      from pawl.replay as r
     where r.updated_at < v_before
       and not exists (select from pawl.command as c where c.scope = r.scope)
     limit coalesce(p_limit, 1000)
       for update skip locked
  )
  delete from pawl.replay as r
   using due as d
   where r.scope = d.scope
     and r.updated_at < v_before;
  get diagnostics v_purged = row_count;
  return query
  select 'purged', v_purged, '{}'::jsonb;
end
$$;

-- stale_commands shows commands that do not finish without help: 'unknown' ones, and those whose
-- lease has ended. Each has advice, and the fence that command_settle takes. It reads the whole
-- table.
create or replace view pawl_v1.stale_commands as
select c.scope,
       c.key,
       c.status,
       case
         when c.status = 'unknown' then 'it may have taken effect: find out, then command_settle'
         else 'its lease is over: the next claim takes it over, or makes it unknown'
       end as advice,
       c.fence,
       c.attempts,
       c.claimed_by,
       c.lease_expires_at,
       c.created_at,
       c.updated_at
  from pawl.command as c
 where c.status = 'unknown'
    or c.status = 'processing' and c.lease_expires_at < clock_timestamp();

-- suppression_by_scope shows for each scope: its commands ('first'), those that took a second
-- attempt ('retried'), and the most attempts of one ('max'). The column replays counts replayed
-- answers as far as command_replayed reported them. It reads the whole table.
create or replace view pawl_v1.suppression_by_scope as
select c.scope,
       count(*) as first,
       count(*) filter (where c.attempts > 1) as retried,
       max(c.attempts) as max,
       coalesce((select r.replays from pawl.replay as r where r.scope = c.scope), 0) as replays
  from pawl.command as c
 group by c.scope;

-- An event exists if and only if the transaction that appended it committed.
--
--   your transaction:  your rows + outbox_append ── commit ──▶ job in queue 'outbox/SINK',
--                                                              in the lane of its aggregate
--                                                                │ claim, publish, finish; next
--                                                                ▼
--                               the sink, at least once, with the same event id each time
--
-- An event is a job of kind 'event' whose handler publishes it. Claims, leases, retries, dead
-- letters, lanes and operators' verbs are those of jobs, so functions that change jobs and lanes
-- also change events. This section defines what an event is.

-- _joined joins parts into an unambiguous key: each part after its length in octets. A result above
-- 255 octets is hashed.
create or replace function pawl_v1._joined(p_one text, p_two text, p_three text default null)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
declare
  v_key text := octet_length(p_one) || ':' || p_one || octet_length(p_two) || ':' || p_two
    || coalesce(octet_length(p_three) || ':' || p_three, '');
begin
  if octet_length(v_key) > 255 then
    return 'sha256:' || encode(sha256(convert_to(v_key, 'UTF8')), 'hex');
  end if;
  return v_key;
end
$$;

-- _check_event checks the names and headers of an event.
create or replace function pawl_v1._check_event(p_sink text, p_type text, p_aggregate_type text, p_aggregate_id text, p_scope text,
  p_key text, p_headers jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
declare
  -- CloudEvents (type String) and HTTP headers allow no control characters.
  c_control constant text := '[\u0001-\u001F\u007F]';
  v_name    text;
begin
  if p_sink is null or octet_length(p_sink) not between 1 and 200 then
    raise exception 'sink must have 1 to 200 octets, it has %', coalesce(octet_length(p_sink), 0)
      using errcode = 'P4000', hint = 'pass the name of the relay that is to publish the event';
  end if;
  perform pawl_v1._check_scope('event type', p_type), pawl_v1._check_headers(p_headers);
  if (p_aggregate_type is null) <> (p_aggregate_id is null) then
    raise exception 'an aggregate has both a type and an id'
      using errcode = 'P4004', hint = 'pass null for both if the event needs no order';
  end if;
  if p_aggregate_type is not null then
    perform pawl_v1._check_scope('aggregate type', p_aggregate_type), pawl_v1._check_scope('aggregate id', p_aggregate_id);
  end if;
  if (p_scope is null) <> (p_key is null) then
    raise exception 'an event has both a scope and a key, or neither'
      using errcode = 'P4004', hint = 'pass those of the command that appends it, or null for both to have a key made';
  end if;
  if p_key is not null then
    perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key);
  end if;
  if concat(p_sink, p_type, p_aggregate_type, p_aggregate_id, p_scope, p_key) ~ c_control then
    select n.what
      into v_name
      from (values ('sink', p_sink), ('event type', p_type), ('aggregate type', p_aggregate_type), ('aggregate id', p_aggregate_id),
                   ('scope', p_scope), ('key', p_key)) as n (what, name)
     where n.name ~ c_control;
    raise exception 'the % holds a control character, which no event can carry', v_name
      using errcode = 'P4004', hint = 'line feeds and other control characters belong into the payload';
  end if;
  if jsonb_typeof(p_headers) = 'object' then
    select h.key
      into v_name
      from jsonb_each(p_headers) as h
     where jsonb_typeof(h.value) <> 'string'
        or lower(h.key) in ('ce-id', 'ce-type', 'ce-specversion')
        or h.key ilike 'pawl-%'
     limit 1;
    if found then
      raise exception 'header % is not a text, or is not yours to set', v_name
        using errcode = 'P4004', hint = 'ce-id, ce-type, ce-specversion and names that begin with pawl- are set by the outbox';
    end if;
    select h.key
      into v_name
      from jsonb_each_text(p_headers) as h
     where h.key ~ c_control
        or replace(h.value, e'\t', '') ~ c_control
     limit 1;
    if found then
      raise exception 'header % holds a control character, which no event can carry', quote_ident(v_name)
        using errcode = 'P4004', hint = 'line feeds and other control characters belong into the payload; only a tab may stand in a value';
    end if;
  end if;
end
$$;

-- _event_headers returns the headers that are stored with an event.
create or replace function pawl_v1._event_headers(p_id text, p_type text, p_aggregate_type text, p_aggregate_id text, p_headers jsonb)
returns jsonb
language sql
stable -- as jsonb_build_object is
return coalesce(nullif(p_headers, 'null'), '{}')
    || case when p_aggregate_id is null then jsonb_build_object('ce-id', p_id, 'ce-type', p_type)
         else jsonb_build_object('ce-id', p_id, 'ce-type', p_type,
           'pawl-aggregate-type', p_aggregate_type, 'pawl-aggregate-id', p_aggregate_id)
       end;

-- outbox_append appends one event, in your transaction. p_sink names the relay that is to publish
-- it, 1 to 200 octets; Go's default is 'default'. Events of one aggregate are published one at a
-- time, in the order in which they were appended. Others that append to the aggregate wait until
-- your transaction ends, so append late. Null for both parts of the aggregate: no order.
--
-- By event_id, receivers recognise a second delivery. It is made of scope, key and type, or a UUID
-- without them. Names, keys and headers must not contain control characters (U+0001 to U+001F,
-- U+007F), because no sink could carry them. A tab is allowed in the value of a header.
--
-- Outcomes:
--   appended   It is published once you have committed.
--   duplicate  An earlier call with this scope, key and type appended it. event_id and job_id are
--              those of the earlier event, which may be published by now.
--
-- Errors:
--   P4002  The scope, key and type came before with another aggregate or payload. DETAIL holds both
--          hashes.
--   40P01  Several calls in one transaction met several in another. Restart the transaction.
--   40001  A key or a lane appeared and disappeared three times. Restart the transaction.
--   P4000, P4001, P4003, P4004
--          An argument.
--
-- Options:
--   scope, key    (text, default none) Both or neither. The same scope, key and type append once.
--                 Without them every event is new.
--   hash          (64 hexadecimal digits, default over aggregate and payload) Tells events apart
--                 under one key.
--   retention_ms  (1 s to 10 years, default 24 h) How long the key is remembered, also after
--                 publishing.
--   max_attempts  (1 to 1000, default 25) After so many attempts the event is a dead letter.
--   headers       (object of texts, default none) 'content-type', 'ce-source', 'ce-time' (RFC
--                 3339), 'traceparent', your own. 'ce-id', 'ce-type', 'ce-specversion' and names
--                 that begin with 'pawl-' are refused.
--   lane_policy   ('block', 'park' or 'skip', default 'block') The policy of an aggregate without
--                 events: see lane_policy.
create or replace function pawl_v1.outbox_append(
  p_sink           text,
  p_type           text,
  p_aggregate_type text,
  p_aggregate_id   text,
  p_payload        bytea,
  p_options        jsonb default '{}'
)
returns table (outcome text, event_id text, job_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_scope   text := p_options ->> 'scope';
  v_key     text := p_options ->> 'key';
  v_lane    text;
  v_id      text;
  v_options jsonb;
begin
  perform pawl_v1._check_options(p_options, '{scope,key,hash,retention_ms,max_attempts,headers,lane_policy}'),
          pawl_v1._check_event(p_sink, p_type, p_aggregate_type, p_aggregate_id, v_scope, v_key, p_options -> 'headers');
  if p_aggregate_id is not null then
    v_lane := pawl_v1._joined(p_aggregate_type, p_aggregate_id);
  end if;
  if v_key is null then
    v_id := gen_random_uuid()::text;
    v_options := p_options - '{scope,key,hash,retention_ms}'::text[];
  else
    v_id := pawl_v1._joined(v_scope, v_key, p_type);
    v_options := p_options - 'scope' || jsonb_build_object('key', v_id,
      'hash', coalesce(p_options ->> 'hash', encode(pawl_v1._job_hash(coalesce(v_lane, ''), p_payload), 'hex')));
  end if;
  v_options := v_options
    || jsonb_build_object('headers', pawl_v1._event_headers(v_id, p_type, p_aggregate_type, p_aggregate_id, p_options -> 'headers'));
  if v_lane is not null then
    v_options := v_options || jsonb_build_object('lane', v_lane);
  end if;
  return query
  select case e.outcome when 'enqueued' then 'appended' else e.outcome end, v_id, e.job_id, e.detail
    from pawl_v1.job_enqueue('outbox/' || p_sink, 'event', p_payload, v_options) as e;
end
$$;

-- outbox_append_many appends up to 10,000 events in one statement. Element i of every array belongs
-- to event i, and the arrays are equally long. A null array, or a null element, means the default
-- of outbox_append. The rows come in order, and n counts from 1. Aggregates and keys are locked in
-- sorted order, so two calls cannot deadlock. Several calls in one transaction can.
--
-- Outcomes:
--   appended, duplicate  As of outbox_append.
--
-- Errors:
--   P4002, 40P01, 40001, P4000, P4001, P4003, P4004
--             As of outbox_append. No event is appended.
--
-- Options:
--   retention_ms, lane_policy
--             As of outbox_append, for all events.
create or replace function pawl_v1.outbox_append_many(
  p_sinks           text[],
  p_types           text[],
  p_aggregate_types text[],
  p_aggregate_ids   text[],
  p_payloads        bytea[],
  p_scopes          text[] default null,
  p_keys            text[] default null,
  p_hashes          bytea[] default null,
  p_max_attempts    int[] default null,
  p_headers         jsonb[] default null,
  p_options         jsonb default '{}'
)
returns table (n int, outcome text, event_id text, job_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count   int := coalesce(cardinality(p_sinks), 0);
  v_lanes   text[];
  v_keys    text[];
  v_hashes  bytea[];
  v_ids     text[];
  v_headers jsonb[];
begin
  perform pawl_v1._check_options(p_options, '{retention_ms,lane_policy}'),
          pawl_v1._check_batch('sinks', v_count, 10000, coalesce(cardinality(p_types), 0),
    coalesce(cardinality(p_aggregate_types), 0), coalesce(cardinality(p_aggregate_ids), 0), coalesce(cardinality(p_payloads), 0),
    coalesce(cardinality(p_scopes), v_count), coalesce(cardinality(p_keys), v_count), coalesce(cardinality(p_hashes), v_count),
    coalesce(cardinality(p_max_attempts), v_count), coalesce(cardinality(p_headers), v_count));
  if v_count = 0 then
    return;
  end if;
  perform pawl_v1._check_event(r.sink, r.type, r.aggregate_type, r.aggregate_id, r.scope, r.key, r.headers)
     from unnest(p_sinks, p_types, p_aggregate_types, p_aggregate_ids, p_scopes, p_keys, p_headers)
            as r (sink, type, aggregate_type, aggregate_id, scope, key, headers);
  select array_agg(case when e.key is not null then pawl_v1._joined(e.scope, e.key, e.type) end order by e.n),
         array_agg(pawl_v1._joined(e.aggregate_type, e.aggregate_id) order by e.n)
    into v_keys, v_lanes
    from unnest(p_types, p_aggregate_types, p_aggregate_ids, p_scopes, p_keys)
           with ordinality as e (type, aggregate_type, aggregate_id, scope, key, n);
  select array_agg(coalesce(e.key, gen_random_uuid()::text) order by e.n),
         array_agg(case when e.key is not null
           then coalesce(e.hash, pawl_v1._job_hash(coalesce(e.lane, ''), e.payload)) end order by e.n)
    into v_ids, v_hashes
    from unnest(v_keys, p_hashes, v_lanes, p_payloads) with ordinality as e (key, hash, lane, payload, n);
  select array_agg(pawl_v1._event_headers(e.id, e.type, e.aggregate_type, e.aggregate_id, e.headers) order by e.n)
    into v_headers
    from unnest(v_ids, p_types, p_aggregate_types, p_aggregate_ids, p_headers)
           with ordinality as e (id, type, aggregate_type, aggregate_id, headers, n);
  return query
  select e.n, case e.outcome when 'enqueued' then 'appended' else e.outcome end, v_ids[e.n], e.job_id, e.detail
    from pawl_v1.job_enqueue_many(
           array(select 'outbox/' || s.sink from unnest(p_sinks) with ordinality as s (sink, n) order by s.n),
           array_fill('event'::text, array[v_count]), p_payloads, v_keys, v_hashes, null, null, p_max_attempts, v_headers,
           p_options || jsonb_build_object('lanes', to_jsonb(v_lanes))) as e;
end
$$;

-- A step is a call to a system that shares no transaction with the database. It belongs to a job, a
-- delivery or a command. You plan it here, call the system outside, and record the result here.
--
--   step_begin ── call ──▶ (you call the provider) ──▶ step_end ── executed ──▶ succeeded
--        ▲    │                                               │        refused ─▶ failed_final
--        │    ├── probe ─▶ (you ask the provider) ──▶ step_end    not_sent, not_executed ─▶ planned
--        │    ├── wait                                        │
--        │    └── unknown ◀── outcome not known ──────────────┘
--        ├──────── step_settle: an operator's verdict
--        └──────── step_again: repeat a refused call under a new key
--
-- pawl.step is state, one row a step: each change passes a fence or follows from evidence.
-- pawl.step_call is evidence, one row a call. A late result is accepted from any attempt, because
-- it reports the provider's act.
--
-- A call is in doubt until its end is reported, or if it ended 'ambiguous'. The step's recovery
-- says what may follow a doubt: see step_begin.
--
-- Check the owner's fence (job_hold, command_hold), call step_begin and commit. Then, if the
-- outcome says so, call the provider, and call step_end in its own transaction. Do not call the
-- provider before the plan has committed.

create or replace function pawl_v1._refuse_recovery(p_recovery text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception 'option recovery is keyed, checked, at_most_once, repeatable or accept_duplicates, not %', coalesce(p_recovery, 'null')
    using errcode = 'P4004';
end
$$;

create or replace function pawl_v1._check_recovery(p_recovery text)
returns void
language sql
immutable
return case
  when p_recovery in ('keyed', 'checked', 'at_most_once', 'repeatable', 'accept_duplicates') then null
  else pawl_v1._refuse_recovery(p_recovery)
end;

-- _step_memory returns how long to rely on a provider's memory of a key: less a tenth, at most a
-- minute, for clock differences and network delay.
create or replace function pawl_v1._step_memory(p_memory interval)
returns interval
language sql
immutable
return p_memory - least(p_memory / 10, interval '1 minute');

-- _step_doubts counts a step's calls in doubt. until: the latest time at which one of them may have
-- been sent. For each call that is its reported end, at the latest not_after.
create or replace function pawl_v1._step_doubts(p_step_row pawl.step, out calls int, out until timestamptz)
language plpgsql -- plpgsql caches the plan; an SQL function would be planned at each call
set search_path = pg_catalog, pg_temp
stable
as $$
begin
  select count(*), max(least(c.ended_at, c.not_after))
    into calls, until
    from pawl.step_call as c
   where c.scope = p_step_row.scope
     and c.key = p_step_row.key
     and c.step = p_step_row.step
     and c.fence > p_step_row.cleared
     and not c.probe
     and coalesce(c.outcome, 'ambiguous') = 'ambiguous';
end
$$;

-- _step_resume makes the job that waited for a verdict pending, unless another of its steps is
-- unknown. The job's row was locked before the step's, which is the worker's lock order.
create or replace function pawl_v1._step_resume(p_job bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue text;
begin
  update pawl.job as j
     set status = 'pending',
         fence = j.fence + 1,
         available_at = clock_timestamp()
   where j.id = p_job
     and j.status = 'unknown'
     and not exists (select from pawl.step as e where e.job_id = p_job and e.status = 'unknown')
  returning j.queue
       into v_queue;
  if found then
    perform pawl_v1._wake(array[v_queue]);
  end if;
end
$$;

-- _step_is_unknown reports whether a step is unknown. It locks the waiting job before the step's
-- own row.
create or replace function pawl_v1._step_is_unknown(p_scope text, p_key text, p_step text, out known boolean, out job_id bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  select e.job_id
    into job_id
    from pawl.step as e
   where e.scope = p_scope
     and e.key = p_key
     and e.step = p_step
     and e.status = 'unknown';
  known := found;
  if not known then
    return;
  end if;
  -- A lock alone would let the later of two verdicts on one job use an old snapshot.
  update pawl.job as j
     set available_at = j.available_at
   where j.id = _step_is_unknown.job_id;
end
$$;

-- _step_restart raises 40001 if a step became unknown, or belongs to another job, since
-- _step_is_unknown read it. Locking its job now could deadlock with its worker.
create or replace function pawl_v1._step_restart(p_key text, p_step text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'step % of % has become unknown this moment', p_step, p_key
    using errcode = '40001', hint = 'restart the transaction';
end
$$;

-- _step_record is a step as the audit keeps it, with the result's length.
create or replace function pawl_v1._step_record(p_step_row pawl.step)
returns jsonb
language sql
stable
return to_jsonb(p_step_row) - 'result' || jsonb_build_object('result_octets', octet_length((p_step_row).result));

-- step_begin plans a step or returns what it may do next. p_scope and p_key name the owner, and
-- p_step the step within it (1 to 255 octets each). p_hash is the SHA-256 of the request.
--
-- Outcomes:
--   call            You may call the provider, once, with provider_key, until not_after. Then call
--                   step_end with this fence. detail.again is the number of earlier calls in doubt.
--   probe           An earlier call is in doubt, and the provider can be asked about it by now. Ask
--                   it, then call step_end with this fence.
--   wait            An earlier request may still take effect. Ask again after retry_after_ms.
--   replay_success  The step has succeeded: 'result', 'reference'. Go on.
--   final_failure   The provider has refused: failure_code, failure_message. Do not call.
--   unknown         It cannot be found out whether the call was executed. End the job with job_fail
--                   and 'unknown'; then step_settle.
--
-- Errors:
--   P4002  The step came before with another request.
--   P4000, P4001, P4003, P4004
--          An argument.
--   P4098  pawl.fence_seq issued a fence that an earlier call had. Run 'pawl migrate up'.
--   40001  Restart the transaction.
--   55P03  The row was locked for more than 2 s.
--
-- Options:
--   recovery      (as below, required) The rule for a call in doubt. It may differ from attempt to
--                 attempt.
--   provider_key  (1 to 255 octets, required) The same at every attempt. The first one given is
--                 kept, and returned.
--   provider      (1 to 255 octets, default none) For people, and for reconciliation.
--   timeout_ms    (1 ms to 12 h, default 30 s) No request is sent later than this after the plan.
--   memory_ms     (1 s to 10 years, default 24 h) How long the provider remembers a key; 'keyed'.
--   settle_ms     (0 to 24 h, default 10 s) How long after it was sent a request may still take
--                 effect; 'checked'.
--   retention_ms  (1 s to 10 years, default 30 days) How long the finished step is remembered, from
--                 its end.
--   job_id        (id, default none) The job that is to wait for a verdict.
--
-- Values of option recovery:
--   keyed              The provider drops a second request with the key, as long as it remembers
--                      it. After a doubt: 'call' until memory_ms after the first one, less a tenth,
--                      a minute at most; then 'unknown'.
--   checked            The provider can be asked. After a doubt: 'wait' until settle_ms after the
--                      last moment of sending, then 'probe'.
--   at_most_once       The provider promises nothing. After a doubt: 'unknown'.
--   repeatable         The request is idempotent by its content. After a doubt: 'call'.
--   accept_duplicates  The provider promises nothing, and a second effect is acceptable. After a
--                      doubt: 'call'.
create or replace function pawl_v1.step_begin(p_scope text, p_key text, p_step text, p_hash bytea, p_options jsonb)
returns table (
  outcome text, fence bigint, provider_key text, not_after timestamptz, retry_after_ms int, result bytea, reference text,
  failure_code text, failure_message text, calls int, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_step_row  pawl.step;
  v_outcome text;
  v_doubt   record;
  v_settled timestamptz;
  v_now     timestamptz;
  v_timeout interval;
  v_until   timestamptz;
  v_calls   int;
  v_last    bigint; -- fence of the previous call
begin
  perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_key('step', p_step),
          pawl_v1._check_hash(p_hash),
          pawl_v1._check_options(p_options, '{recovery,provider_key,provider,timeout_ms,memory_ms,settle_ms,retention_ms,job_id}'),
          pawl_v1._check_recovery(p_options ->> 'recovery'), pawl_v1._check_key('provider_key', p_options ->> 'provider_key');
  v_timeout := pawl_v1._ms_option(p_options, 'timeout_ms', 30000, 1, 43200000);

  for v_try in 1..3 loop
    insert into pawl.step as e (scope, key, step, hash, recovery, provider, provider_key, job_id, expires_at)
    values (p_scope, p_key, p_step, p_hash, p_options ->> 'recovery', p_options ->> 'provider', p_options ->> 'provider_key',
            (p_options ->> 'job_id')::bigint,
            clock_timestamp() + pawl_v1._ms_option(p_options, 'retention_ms', 2592000000, 1000, 315360000000))
    on conflict do nothing;
    select e.*
      into v_step_row
      from pawl.step as e
     where e.scope = p_scope
       and e.key = p_key
       and e.step = p_step
       for update;
    exit when found;
  end loop;
  if not found then
    raise exception 'step % of % keeps appearing and disappearing', p_step, p_key
      using errcode = '40001', hint = 'restart the transaction';
  end if;
  if v_step_row.hash <> p_hash then
    raise exception 'step % of key % in scope % came before with a different request', p_step, p_key, p_scope
      using errcode = 'P4002',
            detail = json_build_object('stored_hash', encode(v_step_row.hash, 'hex'), 'given_hash', encode(p_hash, 'hex')),
            hint = 'a step names one request: derive it from the intent alone, or give the new request a step of its own';
  end if;

  v_now := clock_timestamp();
  select d.calls, d.until
    into v_doubt
    from pawl_v1._step_doubts(v_step_row) as d;
  v_settled := v_doubt.until + pawl_v1._ms_option(p_options, 'settle_ms', 10000, 0, 86400000);
  v_outcome := case
    when v_step_row.status = 'succeeded' then 'replay_success'
    when v_step_row.status = 'failed_final' then 'final_failure'
    when v_step_row.status = 'unknown' then 'unknown'
    when v_doubt.calls = 0 then 'call'
    when p_options ->> 'recovery' in ('repeatable', 'accept_duplicates') then 'call'
    when p_options ->> 'recovery' = 'keyed' and v_now < v_step_row.memory_ends_at then 'call'
    when p_options ->> 'recovery' = 'checked' and v_now < v_settled then 'wait'
    when p_options ->> 'recovery' = 'checked' then 'probe'
    else 'unknown'
  end;

  -- The owner may have a new job, for instance after a replay. The purge needs it.
  if v_outcome in ('replay_success', 'final_failure') and (p_options ->> 'job_id')::bigint <> coalesce(v_step_row.job_id, 0) then
    update pawl.step as e
       set job_id = (p_options ->> 'job_id')::bigint
     where e.scope = p_scope
       and e.key = p_key
       and e.step = p_step;
  end if;
  if v_outcome in ('call', 'probe') then
    -- The provider's memory starts with the first call. That includes a call of which the provider
    -- says that it did nothing, because it carried the key.
    v_until := case when v_outcome = 'call' and p_options ->> 'recovery' = 'keyed' then
      coalesce(case when v_doubt.calls > 0 or v_now < v_step_row.memory_ends_at then v_step_row.memory_ends_at end,
               v_now + pawl_v1._step_memory(pawl_v1._ms_option(p_options, 'memory_ms', 86400000, 1000, 315360000000)))
    end;
    v_last := greatest(v_step_row.fence, v_step_row.cleared);
    update pawl.step as e
       set fence = nextval('pawl.fence_seq'),
           recovery = p_options ->> 'recovery',
           memory_ends_at = coalesce(v_until, e.memory_ends_at),
           job_id = (p_options ->> 'job_id')::bigint,
           updated_at = clock_timestamp()
     where e.scope = p_scope -- locked since its status was read
       and e.key = p_key
       and e.step = p_step
    returning e.*
         into v_step_row;
    if v_step_row.fence <= v_last then -- a verdict on the earlier call would count for this one
      raise exception 'the sequence pawl.fence_seq is behind: it gave out %, and % was given out before', v_step_row.fence, v_last
        using errcode = 'P4098', hint = 'run pawl migrate up, which raises sequences that logical replication left behind';
    end if;
    v_until := least(v_now + v_timeout, v_until);
    insert into pawl.step_call (fence, scope, key, step, probe, started_at, not_after)
    values (v_step_row.fence, p_scope, p_key, p_step, v_outcome = 'probe', v_now, v_until);
  elsif v_outcome = 'unknown' and (v_step_row.status = 'planned' or v_step_row.job_id is distinct from (p_options ->> 'job_id')::bigint) then
    -- The owner may have a new job, for instance after its delivery was forgotten and came again.
    update pawl.step as e
       set status = 'unknown',
           job_id = (p_options ->> 'job_id')::bigint,
           updated_at = clock_timestamp()
     where e.scope = p_scope
       and e.key = p_key
       and e.step = p_step;
  end if;
  select count(*) filter (where not c.probe)
    into v_calls
    from pawl.step_call as c
   where c.scope = p_scope
     and c.key = p_key
     and c.step = p_step;
  return query
  select v_outcome, case when v_outcome in ('call', 'probe') then v_step_row.fence end, v_step_row.provider_key::text,
         case when v_outcome in ('call', 'probe') then v_until end,
         case v_outcome when 'wait' then ceil(extract(epoch from v_settled - v_now) * 1000)::int end,
         v_step_row.result::bytea, v_step_row.reference::text, v_step_row.failure_code::text, v_step_row.failure_message::text, v_calls,
         case
           when v_outcome = 'call' and v_doubt.calls > 0 then jsonb_build_object('again', v_doubt.calls)
           when v_outcome in ('replay_success', 'final_failure') and current_setting('synchronous_standby_names') <> ''
           then pawl_v1._unreplicated()
           else '{}'
         end;
end
$$;

-- step_end records how a call or a probe ended. It is accepted from any attempt, and may be called
-- twice.
--
-- A refusal ends the step if no other call is in doubt, or if all calls carried the same key
-- ('keyed'). Otherwise the step is unknown. When an unknown step is resolved, its job continues.
--
-- Values of p_outcome:
--   executed   Of both: it took effect. p_result (up to 4 MiB) is the answer.
--   refused    Of a call: a final answer. It did not take effect and will not. With 'keyed', the
--              answer to every call with the key.
--   not_sent   Of a call: no request was sent, or the provider reports that it did nothing.
--   ambiguous  Of a call: it was sent, and no answer came.
--   not_executed, cannot_tell
--              Of a probe.
--
-- Outcomes:
--   planned  The step's status now: begin again.
--   succeeded, failed_final, unknown
--            The step's status now.
--   absent   The step was purged.
--
-- Members of detail:
--   late         A newer call has begun since.
--   kept         The step had ended before. Its stored result stays, and step_begin returns it.
--   twice        The provider acted more than once: two calls were executed, or with 'keyed' and
--                'repeatable' two with different references.
--   contradicts  It was executed, and was taken for refused. Or the same call was reported
--                differently before.
--
-- Errors:
--   P4004  p_outcome or an option.
--   40001  The step has just become unknown. Restart the transaction.
--   55P03  A row was locked for 2 s.
--
-- Options:
--   keyless      (boolean) The call of a 'keyed' step carried no key. If it may have been executed,
--                the step is unknown, because another call could be a second effect.
--   reference    (1 to 255 octets, default none) The provider's name for its result.
--   error, code  (text, default none) Of a failure.
--   exchange     (object, default none) Facts about the HTTP exchange, without bodies.
create or replace function pawl_v1.step_end(
  p_scope   text,
  p_key     text,
  p_step    text,
  p_fence   bigint,
  p_outcome text,
  p_result  bytea default null,
  p_options jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_known  record;
  v_step_row pawl.step;
  v_call   pawl.step_call;
  v_doubts int;
  v_status text;
  v_twice  boolean;
  v_ends   boolean;
  v_keyed  boolean;
begin
  perform pawl_v1._check_options(p_options, '{reference,error,code,exchange,keyless}');
  select u.known, u.job_id
    into v_known
    from pawl_v1._step_is_unknown(p_scope, p_key, p_step) as u;
  select e.*
    into v_step_row
    from pawl.step as e
   where e.scope = p_scope
     and e.key = p_key
     and e.step = p_step
     for update;
  select c.*
    into v_call
    from pawl.step_call as c
   where c.fence = p_fence
     and c.scope = p_scope
     and c.key = p_key
     and c.step = p_step;
  if v_step_row.key is null or v_call.fence is null then
    return query
    select 'absent', '{}'::jsonb;
    return;
  end if;
  if v_step_row.status = 'unknown' and (not v_known.known or v_step_row.job_id is distinct from v_known.job_id) then
    perform pawl_v1._step_restart(p_key, p_step);
  end if;
  if p_outcome is null or p_outcome <> all (
    case when v_call.probe then '{executed,not_executed,cannot_tell}' else '{executed,refused,not_sent,ambiguous}' end::text[])
  then
    raise exception '% is not how a % ends', coalesce(p_outcome, 'null'), case when v_call.probe then 'probe' else 'call' end
      using errcode = 'P4004';
  end if;
  -- The first definite outcome stays.
  if coalesce(v_call.outcome, 'ambiguous') not in ('ambiguous', p_outcome) then
    return query
    select v_step_row.status::text, jsonb_build_object('kept', true, 'contradicts', true);
    return;
  end if;

  update pawl.step_call as c
     set outcome = p_outcome,
         ended_at = coalesce(case when c.outcome = p_outcome then c.ended_at end, clock_timestamp()),
         reference = coalesce(p_options ->> 'reference', c.reference),
         detail = c.detail || (p_options - 'reference')
   where c.fence = p_fence;
  select case
           when v_step_row.recovery in ('keyed', 'repeatable') then count(distinct c.reference) > 1
           else count(*) > 1
         end
    into v_twice
    from pawl.step_call as c
   where c.scope = p_scope
     and c.key = p_key
     and c.step = p_step
     and c.outcome = 'executed'
     and not c.probe;
  select d.calls
    into v_doubts
    from pawl_v1._step_doubts(v_step_row) as d;
  v_keyed := v_step_row.recovery = 'keyed' and not coalesce((p_options ->> 'keyless')::boolean, false);
  v_status := case
    when v_step_row.status in ('succeeded', 'failed_final') then v_step_row.status::text
    when p_outcome = 'executed' then 'succeeded'
    -- It was settled since, or asked again under another key.
    when p_outcome = 'refused' and p_fence <= v_step_row.cleared then v_step_row.status::text
    when p_outcome = 'refused' and (v_doubts = 0 or v_keyed) then 'failed_final'
    when p_outcome in ('refused', 'cannot_tell') and p_fence = v_step_row.fence and p_fence > v_step_row.cleared then 'unknown'
    when p_outcome = 'ambiguous' and (v_step_row.recovery = 'at_most_once' or v_step_row.recovery = 'keyed' and not v_keyed)
         and p_fence > v_step_row.cleared then 'unknown'
    when v_step_row.status = 'unknown' and v_doubts = 0 then 'planned'
    else v_step_row.status::text
  end;
  v_ends := v_status in ('succeeded', 'failed_final') and v_status <> v_step_row.status;
  update pawl.step as e
     set status = v_status,
         cleared = case when p_outcome = 'not_executed' and p_fence = e.fence then e.fence else e.cleared end,
         updated_at = clock_timestamp(),
         expires_at = case when v_ends then clock_timestamp() + (e.expires_at - e.created_at) else e.expires_at end,
         result = case when v_ends and v_status = 'succeeded' then p_result else e.result end,
         reference = case when v_ends and v_status = 'succeeded' then p_options ->> 'reference' else e.reference end,
         failure_code = case when v_ends and v_status = 'failed_final' then p_options ->> 'code' else e.failure_code end,
         failure_message = case when v_ends and v_status = 'failed_final' then left(p_options ->> 'error', 4000) else e.failure_message end
   where e.scope = p_scope
     and e.key = p_key
     and e.step = p_step;
  if v_step_row.status = 'unknown' and v_status <> 'unknown' then
    perform pawl_v1._step_resume(v_step_row.job_id);
  end if;
  return query
  select v_status,
         case when p_fence < v_step_row.fence then '{"late": true}' else '{}' end::jsonb
         || case when v_step_row.status in ('succeeded', 'failed_final') then '{"kept": true}' else '{}' end::jsonb
         || case when p_outcome = 'executed' and v_twice and v_step_row.recovery <> 'accept_duplicates' then '{"twice": true}' else '{}' end::jsonb
         || case when p_outcome = 'executed' and v_step_row.status = 'failed_final' then '{"contradicts": true}' else '{}' end::jsonb;
end
$$;

-- step_settle ends the doubt about an unknown step, after you found out whether it was executed.
-- The job that waits for it continues, unless another of its steps is unknown. p_fence is the
-- step's fence when you asked the provider, as in view steps. The verdict covers the calls up to
-- that one. It leaves a record in pawl.audit.
--
-- Values of p_verdict:
--   executed      The step has succeeded.
--   refused       It failed for good and will not take effect.
--   not_executed  It may be called again.
--
-- Outcomes:
--   settled  detail.status is the status now.
--   refused  It is not unknown: detail.status.
--   moved    Another call has begun since: detail.fence. Ask the provider again.
--   early    Not of 'executed': a frozen attempt may still send the call for detail.retry_after_ms.
--   absent   There is no such step.
--
-- Errors:
--   P4004  Fence, verdict, actor, reason or an option.
--   40001  Restart the transaction.
--   55P03  A row was locked for 2 s.
--
-- Options:
--   result       (text, default none) The answer of an executed call.
--   reference    (1 to 255 octets, default none) The provider's name for the result of an executed
--                call.
--   error, code  (text, default none) Of a refusal.
create or replace function pawl_v1.step_settle(
  p_scope   text,
  p_key     text,
  p_step    text,
  p_fence   bigint,
  p_verdict text,
  p_actor   text,
  p_reason  text,
  p_options jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_known  record;
  v_before pawl.step;
  v_after  pawl.step;
  v_until  timestamptz;
begin
  perform pawl_v1._check_options(p_options, '{result,reference,error,code}');
  perform pawl_v1._check_by(p_actor, p_reason);
  if p_verdict is null or p_verdict not in ('executed', 'refused', 'not_executed') then
    raise exception 'the verdict is executed, refused or not_executed, not %', coalesce(p_verdict, 'null')
      using errcode = 'P4004';
  end if;
  perform pawl_v1._check_fence_seen(p_fence);
  select u.known, u.job_id
    into v_known
    from pawl_v1._step_is_unknown(p_scope, p_key, p_step) as u;
  select e.*
    into v_before
    from pawl.step as e
   where e.scope = p_scope
     and e.key = p_key
     and e.step = p_step
     for update;
  if v_before.status is distinct from 'unknown' then
    return query
    select case when v_before.key is null then 'absent' else 'refused' end,
           jsonb_strip_nulls(jsonb_build_object('status', v_before.status));
    return;
  end if;
  if not v_known.known or v_before.job_id is distinct from v_known.job_id then
    perform pawl_v1._step_restart(p_key, p_step);
  end if;
  if v_before.fence <> p_fence then
    return query
    select 'moved', jsonb_build_object('status', v_before.status, 'fence', v_before.fence);
    return;
  end if;
  select d.until
    into v_until
    from pawl_v1._step_doubts(v_before) as d;
  if p_verdict <> 'executed' and v_until > clock_timestamp() then
    return query
    select 'early', jsonb_build_object('status', v_before.status,
                                       'retry_after_ms', ceil(extract(epoch from v_until - clock_timestamp()) * 1000)::bigint);
    return;
  end if;
  update pawl.step as e
     set status = case p_verdict when 'executed' then 'succeeded' when 'refused' then 'failed_final' else 'planned' end,
         cleared = e.fence,
         memory_ends_at = null,
         updated_at = clock_timestamp(),
         expires_at = clock_timestamp() + (e.expires_at - e.created_at),
         result = case p_verdict when 'executed' then convert_to(p_options ->> 'result', 'UTF8') end,
         reference = case p_verdict when 'executed' then p_options ->> 'reference' end,
         failure_code = case p_verdict when 'refused' then p_options ->> 'code' end,
         failure_message = case p_verdict when 'refused' then left(coalesce(p_options ->> 'error', p_reason), 4000) end
   where e.scope = p_scope
     and e.key = p_key
     and e.step = p_step
  returning e.*
       into v_after;
  insert into pawl.audit (actor, verb, target, reason, before, after)
  values (p_actor, 'step_settle', pawl_v1._audit_target('step', p_scope, p_key, p_step), p_reason,
          pawl_v1._step_record(v_before), pawl_v1._step_record(v_after));
  perform pawl_v1._step_resume(v_after.job_id);
  return query
  select 'settled', jsonb_build_object('status', v_after.status);
end
$$;

-- step_again lets a step be called again, under a new key, if its provider refused it for good. The
-- refusal is stored, and a provider repeats it for its key, so a retry of the job alone fails again
-- at once. Use it if the request may be accepted now, for example because the customer has a new
-- card. Then retry the job (job_retry). It leaves a record in pawl.audit.
--
-- No key ties the new call to the old ones. If the provider took one of them after all, the effect
-- happens twice. p_fence is the step's fence when you looked, as in view steps.
--
-- Outcomes:
--   renewed      detail has provider_key, 'job' and 'calls'.
--   would_renew  With dry_run: as renewed, but nothing changed.
--   refused      It was not refused: detail.status. Or a call of it was executed: detail.executed.
--   moved        Another call has begun since: detail.fence.
--   early        A frozen attempt may still send an earlier call for detail.retry_after_ms.
--   absent       There is no such step.
--
-- Errors:
--   P4001  The key is invalid or the old one.
--   P4004  Fence, actor, reason or an option.
--   55P03  The row was locked for 2 s.
--
-- Options:
--   provider_key  (1 to 255 octets, default a random UUID) The new key.
--   dry_run       (boolean) Report what would be done.
create or replace function pawl_v1.step_again(
  p_scope   text,
  p_key     text,
  p_step    text,
  p_fence   bigint,
  p_actor   text,
  p_reason  text,
  p_options jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set lock_timeout = '2s'
set search_path = pg_catalog, pg_temp
as $$
declare
  v_before pawl.step;
  v_after  pawl.step;
  v_seen   record;
  v_new    text := coalesce(p_options ->> 'provider_key', gen_random_uuid()::text);
begin
  perform pawl_v1._check_options(p_options, '{provider_key,dry_run}');
  perform pawl_v1._check_by(p_actor, p_reason);
  perform pawl_v1._check_fence_seen(p_fence);
  perform pawl_v1._check_key('provider_key', v_new);
  select e.*
    into v_before
    from pawl.step as e
   where e.scope = p_scope
     and e.key = p_key
     and e.step = p_step
     for update;
  select count(*)::int as calls,
         bool_or(c.outcome = 'executed') as executed,
         max(c.not_after) filter (where c.fence > v_before.cleared and coalesce(c.outcome, 'ambiguous') = 'ambiguous') as open_until
    into v_seen
    from pawl.step_call as c
   where c.scope = p_scope
     and c.key = p_key
     and c.step = p_step
     and not c.probe;
  if v_before.status is distinct from 'failed_final' or v_seen.executed then
    return query
    select case when v_before.key is null then 'absent' else 'refused' end,
           jsonb_strip_nulls(jsonb_build_object('status', v_before.status, 'executed', nullif(v_seen.executed, false)));
    return;
  end if;
  if v_before.fence <> p_fence then
    return query
    select 'moved', jsonb_build_object('status', v_before.status, 'fence', v_before.fence);
    return;
  end if;
  if v_seen.open_until > clock_timestamp() then
    return query
    select 'early', jsonb_build_object('status', v_before.status,
                                       'retry_after_ms', ceil(extract(epoch from v_seen.open_until - clock_timestamp()) * 1000)::bigint);
    return;
  end if;
  if v_new = v_before.provider_key then
    raise exception 'the provider refused under the key %', v_new
      using errcode = 'P4001', hint = 'give another, or none: a random one is made';
  end if;
  if not coalesce((p_options ->> 'dry_run')::boolean, false) then
    update pawl.step as e
       set status = 'planned',
           cleared = e.fence,
           provider_key = v_new,
           memory_ends_at = null,
           updated_at = clock_timestamp(),
           failure_code = null,
           failure_message = null
     where e.scope = p_scope -- locked since its status was read
       and e.key = p_key
       and e.step = p_step
    returning e.*
         into v_after;
    insert into pawl.audit (actor, verb, target, reason, before, after)
    values (p_actor, 'step_again', pawl_v1._audit_target('step', p_scope, p_key, p_step), p_reason,
            pawl_v1._step_record(v_before), pawl_v1._step_record(v_after));
  end if;
  return query
  select case when v_after.key is null then 'would_renew' else 'renewed' end,
         jsonb_strip_nulls(jsonb_build_object('provider_key', v_after.provider_key, 'job', v_before.job_id, 'calls', v_seen.calls));
end
$$;

-- step_purge deletes finished steps whose memory has ended, and their calls, at most p_limit (1 to
-- 100,000). It also deletes planned steps of a job that is gone, of an ended command or of a row of
-- your table, unless a call of them is in doubt.
--
-- Steps in doubt or unknown are never deleted by age. Neither is a step of a job that still exists,
-- because a dead letter may be retried, or of a command that may run again.
--
-- Outcomes:
--   purged  The column purged is the number of steps. detail.next as of job_key_purge.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   older_than_ms  (0 to 10 years, default 24 h) Skip steps created since. The call reads no
--                  further, so raise it to the shortest retention_ms in use.
--   since          (timestamp) As of job_key_purge.
create or replace function pawl_v1.step_purge(p_limit int default 10000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- walk the age index in order: docs/decisions/0036-purging.md
set enable_sort = off
set enable_seqscan = off
as $$
declare
  v_before timestamptz := pawl_v1._before(pawl_v1._int_option(p_options, 'older_than_ms', 86400000, 0, 315360000000));
  v_due    tid[];
  v_next   timestamptz;
  v_purged int;
begin
  perform pawl_v1._check_options(p_options, '{older_than_ms,since}');
  perform pawl_v1._check_int('limit', p_limit, 1, 100000);
  select array_agg(d.ctid), max(d.created_at) -- ctids: see job_key_purge
    into v_due, v_next
    from (
      select e.ctid, e.created_at
        from pawl.step as e
       where e.created_at < v_before
         and e.created_at >= pawl_v1._since(p_options)
         and e.expires_at < clock_timestamp()
         and (e.status in ('succeeded', 'failed_final')
              or e.status = 'planned' and (pawl_v1._step_doubts(e)).calls = 0)
         and not exists (select from pawl.job as j where j.id = e.job_id)
         and not exists ( -- the delivery's present job, which may not have begun
               select
                 from pawl.inbox as i
                 join pawl.job as j on j.id = i.job_id
                where i.consumer = substr(e.scope, length('inbox/') + 1)
                  and i.key = e.key
                  and e.scope like 'inbox/%')
         and not exists (
               select
                 from pawl.command as c
                where c.scope = substr(e.scope, length('command/') + 1)
                  and c.key = e.key
                  and e.scope like 'command/%'
                  and c.status not in ('succeeded', 'failed_final'))
       order by e.created_at
       limit p_limit
         for update skip locked
    ) as d;
  with gone as (
    delete from pawl.step as e
     where e.ctid = any (v_due)
       and e.expires_at < clock_timestamp()
       and e.status <> 'unknown'
    returning e.scope, e.key, e.step
  ), calls as materialized (
    select c.ctid as place
      from gone as g
     cross join lateral (
            select o.ctid from pawl.step_call as o where o.scope = g.scope and o.key = g.key and o.step = g.step limit 100000) as c
  ), evidence as (
    delete from pawl.step_call as c
     where c.ctid = any (array(select s.place from calls as s))
  )
  select count(*)
    into v_purged
    from gone;
  return query
  select 'purged', v_purged, jsonb_strip_nulls(jsonb_build_object('next', v_next));
end
$$;

-- steps shows each step with its evidence. The fence is the one that a verdict names. 'calls' is
-- the number of its calls, and in_doubt that of its calls in doubt. first_called_at is when the
-- first began, and last_not_after until when the last may have been sent. Look at status =
-- 'unknown' first, which has an index.
create or replace view pawl_v1.steps as
select e.scope,
       e.key,
       e.step,
       e.status,
       e.fence,
       e.recovery,
       e.provider,
       e.provider_key,
       e.reference,
       e.job_id,
       c.calls,
       c.in_doubt,
       c.first_called_at,
       c.last_not_after,
       e.memory_ends_at,
       e.failure_code,
       e.failure_message,
       e.created_at,
       e.updated_at,
       e.expires_at
  from pawl.step as e
 cross join lateral (
        select count(*) as calls,
               count(*) filter (where k.fence > e.cleared and coalesce(k.outcome, 'ambiguous') = 'ambiguous') as in_doubt,
               min(k.started_at) as first_called_at,
               max(k.not_after) as last_not_after
          from pawl.step_call as k
         where k.scope = e.scope
           and k.key = e.key
           and k.step = e.step
           and not k.probe) as c;

-- Work of all kinds that waits for a decision or a takeover, with advice.

-- _steps_of_job returns the steps of a job. Their scope is its queue and their key its id, '@' and
-- the time of enqueueing. The steps of a stored delivery are under its key.
create or replace function pawl_v1._steps_of_job(p_job pawl.job)
returns setof pawl.step
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select e.*
    from pawl.step as e
   where e.scope = 'job/' || p_job.queue
     and e.key > p_job.id || '@'
     and e.key < p_job.id || 'A'
   union all
  select e.*
    from pawl.step as e
   where e.scope = p_job.queue
     and e.key = coalesce(p_job.headers ->> 'pawl-step-key', p_job.headers ->> 'pawl-inbox-key');
end
$$;

-- _dead_letter_advice says what an operator may do about a dead letter, and what may have happened.
create or replace function pawl_v1._dead_letter_advice(p_job pawl.job)
returns text
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_code    text := p_job.last_errors -> -1 ->> 'code';
  v_refused text;
  v_doubted text;
begin
  select string_agg(s.step, ', ' order by s.step) filter (where s.status = 'failed_final'),
         string_agg(s.step || ' (key ' || s.provider_key || ')', ', ' order by s.step)
           filter (where s.status = 'planned' and (pawl_v1._step_doubts(s)).calls > 0)
    into v_refused, v_doubted
    from pawl_v1._steps_of_job(p_job) as s;
  return case
    when v_code = 'mismatch' then 'it came under a known key with another payload: the first took effect, or is a job of its own, and a retry runs '
                               || 'this one beside it; job_discard, unless both are wanted'
    when v_code = 'P4051' then 'it is older than what is remembered, and may have taken effect: find out, then job_discard or job_retry'
    when v_code = '08007' then 'its handler ended the transaction that it was lent, and what it wrote may be durable: look for it, then job_discard if it is '
                            || 'there, job_retry if it is not'
    when v_code = 'P4002' then 'it made another request under a key or a step that it had used before, and a retry by the same build meets that again: find out '
                            || coalesce('from the provider whether the call of step ' || v_doubted || ' took effect', 'whether the first request took effect')
                            || ', then job_discard, and enqueue what is still to be done under a new key'
    when v_doubted is not null then 'a call of step ' || v_doubted || ' may have been executed: job_retry is safe for it, the step asks, calls again or '
                                    || 'becomes unknown as its recovery says; ask the provider before job_discard'
    when v_refused is not null then 'step ' || v_refused || ' was refused for good, and a retry meets the stored refusal at once: if it may be accepted '
                                    || 'now, step_again (a new key), then job_retry; else job_discard'
    when p_job.crashes > 0 then 'its process died or froze ' || p_job.crashes || ' times while it ran: what it wrote here was rolled back, but calls of other '
                                || 'systems outside of steps may have been executed. Ask those systems first; then job_retry if nothing happened, job_discard if it did'
    else 'repair the cause, then job_retry or job_discard'
  end;
end
$$;

-- stale_classify lists rows that make no progress until an operator decides or a process notices
-- them, with advice. p_kind is 'command', 'step', 'job', or null for all. It changes nothing and
-- reads the whole tables.
--
-- 'scope' and 'key' name the row: of a step its owner's, with the step in detail; of a job the
-- queue and the id. detail of a command or a step has the fence that a verdict takes. That of a
-- step also has 'step', 'recovery', 'provider' and provider_key. That of a job has 'attempts',
-- 'crashes', 'code' (of its last error) and message_key (of the delivery that it is).
--
-- Pawl does not know whether a row of your table (package guard) is still retried, or whether a
-- client repeats a command that failed. A step of such an owner is 'orphaned' if no attempt has
-- touched it for 2 hours. The column reason says so.
--
-- In three cases the advice says that a retry may take effect a second time: a delivery under a
-- known key with another payload; a delivery that came later than is remembered; and a job with the
-- code 08007, whose handler ended its transaction itself.
--
-- In Go, ops.Stales takes probes, one for each scope, that look into your own tables. If a probe
-- finds that a row took effect, its class is 'already_succeeded' (ops.AlreadySucceeded).
--
-- Values of class:
--   unknown      It cannot be found out whether it took effect. It needs a verdict.
--   abandoned    Its attempt is gone. The next claim or sweep takes it.
--   orphaned     A call in doubt that no attempt will follow up: its job is dead, cancelled or
--                over, or its command has ended.
--   dead_letter  It is not retried.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   limit   (1 to 1,000,000, default all) The most rows of a kind and class, the oldest first.
--   advice  (boolean, default true) False leaves the advice out, which takes most of the time.
create or replace function pawl_v1.stale_classify(p_kind text default null, p_options jsonb default '{}')
returns table (kind text, scope text, key text, class text, reason text, advice text, since timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  v_limit  bigint;
  v_advice boolean := coalesce((p_options ->> 'advice')::boolean, true);
begin
  perform pawl_v1._check_options(p_options, '{limit,advice}');
  v_limit := pawl_v1._int_option(p_options, 'limit', null, 1, 1000000);
  if p_kind not in ('command', 'step', 'job') then
    raise exception 'the kind is command, step or job, not %', p_kind
      using errcode = 'P4004';
  end if;
  return query
  select 'command',
         c.scope::text,
         c.key::text,
         case c.status when 'unknown' then 'unknown' else 'abandoned' end,
         case
           when c.status = 'unknown' then 'an attempt stopped renewing its lease, and its work is not declared repeatable'
           when c.lease_expires_at is null then 'its claim was committed without an end'
           else 'its lease is over'
         end,
         case when v_advice then c.advice end,
         c.updated_at,
         jsonb_build_object('fence', c.fence)
    from (
      (select s.* from pawl_v1.stale_commands as s where s.status = 'unknown' order by s.updated_at limit v_limit)
       union all
      (select s.* from pawl_v1.stale_commands as s where s.status <> 'unknown' order by s.updated_at limit v_limit)) as c
   where p_kind is null or p_kind = 'command'
   union all
  select 'step',
         e.scope::text,
         e.key::text,
         case e.status when 'unknown' then 'unknown' else 'orphaned' end,
         case
           when e.status = 'unknown' and e.recovery = 'keyed' then 'a call went unanswered, and the provider may have forgotten its key'
           when e.status = 'unknown' then 'a call went unanswered'
           when j.id is not null then 'a call went unanswered, and its job is ' || j.status
           when e.job_id is not null then 'a call went unanswered, and its job has ended'
           when e.command in ('succeeded', 'failed_final') then 'a call went unanswered, and its command has ended'
           when e.scope like 'guard/%' then 'a call went unanswered, and no attempt of its row has followed for 2 hours'
           else 'a call went unanswered, and no attempt of its owner has followed for 2 hours'
         end,
         case
           when not v_advice then null
           when e.status = 'unknown' then 'ask the provider for ' || e.provider_key || ', then step_settle; or run step.Reconcile'
           when j.id is not null then 'retry the job: its step asks, calls again or becomes unknown, as the recovery says'
           when e.scope like 'guard/%' then 'look at row ' || e.key || ' of ' || substr(e.scope, length('guard/') + 1) || ': make it pending, and its step asks, calls '
                                         || 'again or becomes unknown, as the recovery says; if the row shall stay as it is, ask the provider for ' || e.provider_key
           else 'ask the provider for ' || e.provider_key || ' whether it was executed; only a new attempt of its owner can record it'
         end,
         e.updated_at,
         jsonb_build_object('step', e.step, 'fence', e.fence, 'recovery', e.recovery, 'provider', e.provider, 'provider_key', e.provider_key)
    from (
      (select s.*, null::text as command from pawl_v1.steps as s where s.status = 'unknown' order by s.updated_at limit v_limit)
       union all
      (select s.*, c.status::text
         from pawl_v1.steps as s
         left join pawl.job as k on k.id = s.job_id
         left join pawl.command as c
           on c.scope = substr(s.scope, length('command/') + 1)
          and c.key = s.key
          and s.scope like 'command/%'
        where s.status = 'planned'
          and s.in_doubt > 0
          and s.last_not_after < clock_timestamp()
          and case
                when s.job_id is not null then coalesce(k.status, 'succeeded') in ('dead_letter', 'cancelled', 'succeeded')
                when c.status in ('succeeded', 'failed_final') then true
                when c.status in ('processing', 'unknown') then false -- the command is listed itself
                else greatest(s.updated_at, s.last_not_after) < clock_timestamp() - interval '2 hours'
              end
        order by s.updated_at
        limit v_limit)) as e
    left join pawl.job as j on j.id = e.job_id
   where p_kind is null or p_kind = 'step'
   union all
  select 'job',
         j.queue::text,
         j.id::text,
         case j.status when 'processing' then 'abandoned' else j.status::text end,
         case
           when j.status = 'processing' then 'its lease is over'
           else coalesce(j.last_errors -> -1 ->> 'error', 'it says nothing')
         end,
         case
           when not v_advice then null
           when j.status = 'processing' then 'nothing: the sweep gives it back; if it stays, no worker is running'
           when j.status = 'unknown' then 'settle its step: see kind step'
           else pawl_v1._dead_letter_advice(j)
         end,
         j.available_at,
         jsonb_strip_nulls(jsonb_build_object('attempts', j.attempts, 'crashes', j.crashes, 'code', j.last_errors -> -1 ->> 'code',
                                              'message_key', j.headers ->> 'pawl-key'))
    from (
      (select o.id from pawl.job as o where o.status = 'dead_letter' order by o.id limit v_limit)
       union all
      (select o.id from pawl.job as o where o.status = 'unknown' order by o.id limit v_limit)
       union all
      (select o.id
         from pawl.job as o
         left join pawl.worker as w on w.id = o.claimed_by
        where o.status = 'processing'
          and coalesce(w.seen_at + w.lease, o.lease_expires_at, '-infinity') < clock_timestamp()
        order by o.id
        limit v_limit)) as f
    join pawl.job as j on j.id = f.id
   where p_kind is null or p_kind = 'job';
end
$$;

-- The history of one key, from all tables and the audit, in time order.

-- _names returns the first p_limit values of the leading primary key column of a table. Each costs
-- one index probe, for any number of rows.
create or replace function pawl_v1._names(p_table text, p_column text, p_limit int)
returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  v_names text[];
begin
  execute format($query$
    with recursive names (name) as (
      (select t.%2$I::text from pawl.%1$I as t order by t.%2$I limit 1)
       union all
      select (select t.%2$I::text from pawl.%1$I as t where t.%2$I > n.name order by t.%2$I limit 1)
        from names as n
       where n.name is not null
    )
    select array(select n.name from names as n where n.name is not null limit $1) $query$, p_table, p_column)
    into v_names
   using p_limit;
  return v_names;
end
$$;

-- _story_of_jobs returns what is known of some jobs. Without a row it finished or was discarded.
create or replace function pawl_v1._story_of_jobs(p_jobs bigint[])
returns table (at timestamptz, kind text, scope text, key text, event text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
begin
  return query
  select e.at, 'job', j.queue::text, j.id::text, e.event, e.detail
    from unnest(p_jobs) as i (id)
   cross join lateral (select o.* from pawl.job as o where o.id = i.id limit 1) as j
    left join pawl.worker as w on w.id = j.claimed_by
    left join pawl.lane as l on l.id = j.lane_id
    left join pawl.job as h on h.lane_id = j.lane_id and h.lane_head and h.id <> j.id
   cross join lateral (
          select j.created_at, 'enqueued', jsonb_build_object('kind', j.kind, 'priority', j.priority, 'payload_octets', octet_length(j.payload))
           union all
          select (r.error ->> 'at')::timestamptz, 'failed', r.error - 'at' - 'lease_ended_at'
            from jsonb_array_elements(coalesce(nullif(j.last_errors, 'null'), '[]')) as r (error)
           union all
          select (r.error ->> 'lease_ended_at')::timestamptz, 'lease_ended', jsonb_strip_nulls(jsonb_build_object(
                   'attempt', r.error -> 'attempt', 'fence', r.error -> 'fence', 'worker', r.error -> 'worker'))
            from jsonb_array_elements(coalesce(nullif(j.last_errors, 'null'), '[]')) as r (error)
           where r.error ? 'lease_ended_at'
           union all
          -- In this status since its last error. Without an error it was stored so.
          select case when j.status in ('dead_letter', 'unknown')
                      then coalesce((nullif(j.last_errors, 'null') -> -1 ->> 'at')::timestamptz, j.created_at)
                      else clock_timestamp()
                 end, j.status::text, jsonb_strip_nulls(jsonb_build_object(
                   'attempts', j.attempts, 'max_attempts', j.max_attempts, 'crashes', nullif(j.crashes, 0), 'fence', j.fence,
                   'worker', w.name, 'lease_expires_at', coalesce(w.seen_at + w.lease, j.lease_expires_at),
                   'lane', l.name, 'lane_head', h.id, 'lane_head_status', h.status))
           union all
          select j.available_at, 'due', '{}'
           where j.status = 'pending'
             and j.available_at > clock_timestamp()) as e (at, event, detail);
  return query
  select e.at, 'job', a.queue::text, a.id::text, e.event, e.detail
    from unnest(p_jobs) as i (id)
   cross join lateral (select o.* from pawl_v1.archive as o where o.id = i.id limit 1) as a
   cross join lateral (
          values (a.created_at, 'enqueued', jsonb_build_object('kind', a.kind, 'priority', a.priority, 'payload_octets', octet_length(a.payload))),
                 (a.finished_at, 'succeeded', jsonb_strip_nulls(jsonb_build_object(
                   'attempts', a.attempts, 'crashes', nullif(a.crashes, 0), 'fence', a.fence, 'lane', a.lane)))) as e (at, event, detail);
  return query
  select w.at, w.kind, w.scope::text, w.key::text, 'stale_write_refused', jsonb_build_object('fence', w.fence, 'worker', w.worker)
    from unnest(p_jobs) as i (id)
   cross join lateral (select o.* from pawl.stale_write as o where o.kind = 'job' and o.key = i.id::text order by o.fence limit 100) as w;
  return query
  select null::timestamptz, 'job', null, i.id::text, 'gone', '{"hint": "it finished, or was discarded: no row of it is kept"}'::jsonb
    from unnest(p_jobs) as i (id)
   where not exists (select from pawl.job as j where j.id = i.id)
     and not exists (select from pawl_v1.archive as a where a.id = i.id);
end
$$;

-- _refused_of returns jobs of deliveries that were refused under a key, mostly because it came with
-- another payload. The inbox has them under a generated key. For dead, unknown and cancelled jobs
-- there is an index. Of those being retried, it finds the ones among the first 500 such keys.
create or replace function pawl_v1._refused_of(p_key text, p_consumers text[], p_queues text[])
returns setof bigint
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  v_consumers text[] := array(
    select s.name from unnest(p_consumers) as s (name)
     union
    select substr(s.name, length('inbox/') + 1) from unnest(p_queues) as s (name) where s.name like 'inbox/%');
begin
  return query
  select f.id
    from unnest(v_consumers) as s (name)
   cross join lateral (
          select j.id
            from pawl.job as j
           where j.queue = 'inbox/' || s.name
             and left(j.headers ->> 'pawl-key', 255) collate "C" = p_key
             and j.headers ->> 'pawl-key' is not null
             and j.status in ('dead_letter', 'unknown', 'cancelled')
           order by j.id desc
           limit 100) as f;
  return query
  select j.id
    from (
      select i.job_id
        from unnest(v_consumers) as s (name)
       cross join lateral (
              select o.job_id
                from pawl.inbox as o
               where o.consumer = s.name
                 and o.key >= 'pawl/'
                 and o.key < 'pawl0'
               order by o.key
               limit 500) as i
       limit 500) as n (id)
   cross join lateral (select o.id, o.headers from pawl.job as o where o.id = n.id limit 1) as j
   where j.headers ->> 'pawl-key' = p_key;
end
$$;

-- _steps_of returns the steps that belong to a key or to some jobs.
create or replace function pawl_v1._steps_of(p_key text, p_jobs bigint[], p_owners text[])
returns setof pawl.step
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
begin
  return query
  select e.*
    from unnest(p_owners) as s (name)
   cross join lateral (select o.* from pawl.step as o where o.scope = s.name and o.key = p_key order by o.step limit 100) as e;
  return query -- a delivery with a second name has its steps under that
  select e.*
    from unnest(p_owners) as s (name)
   cross join lateral (
          select j.headers ->> 'pawl-step-key'
            from pawl.job as j
           where j.id = any (p_jobs)
             and j.queue = s.name
           union
          select a.headers ->> 'pawl-step-key'
            from unnest(p_jobs) as i (id)
           cross join lateral (select o.* from pawl_v1.archive as o where o.id = i.id limit 1) as a
           where a.queue = s.name
           union
          select d.stored_as ->> 'semantic'
            from pawl.delivery as d
           where d.consumer = substr(s.name, length('inbox/') + 1)
             and d.key = p_key) as n (key)
   cross join lateral (select o.* from pawl.step as o where o.scope = s.name and o.key = n.key order by o.step limit 100) as e
   where s.name like 'inbox/%'
     and n.key <> p_key;
  return query -- the key of a job's step is the job's id, '@' and the time of enqueueing
  select e.*
    from unnest(p_owners) as s (name)
   cross join unnest(p_jobs) as i (id)
   cross join lateral (
          select o.*
            from pawl.step as o
           where o.scope = s.name
             and o.key > i.id || '@'
             and o.key < i.id || 'A'
           order by o.key, o.step
           limit 100) as e
   where s.name like 'job/%';
end
$$;

-- _key_of_job returns the enqueue key of a job that was enqueued at p_at. The key was inserted just
-- before, in the same call, so the age index finds it. Without statistics the planner would scan
-- another index from its start, so only bitmap scans are enabled.
create or replace function pawl_v1._key_of_job(p_job bigint, p_at timestamptz)
returns setof pawl.job_key
language plpgsql
set search_path = pg_catalog, pg_temp
stable
set enable_indexscan = off
set enable_seqscan = off
as $$
begin
  return query
  select k.*
    from pawl.job_key as k
   where k.created_at between p_at - interval '1 second' and p_at
     and k.job_id = p_job
   limit 1;
end
$$;

-- _story returns the rows of explain, unordered. p_scopes, p_consumers, p_queues, p_owners (scopes
-- of steps): where to look for the key. p_scope: the only one of them, or null.
create or replace function pawl_v1._story(p_key text, p_scope text, p_scopes text[], p_consumers text[], p_queues text[], p_owners text[])
returns table (at timestamptz, kind text, scope text, key text, event text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  -- the queues of p_scope
  v_within text[] := case when p_scope is not null then array[p_scope, 'inbox/' || p_scope, 'outbox/' || p_scope] end;
  v_jobs   bigint[] := '{}';
  v_known  text[] := '{}'; -- scopes and consumers that know the key, for events
  v_seen   jsonb := '[]';  -- deliveries: [consumer, message id]
  v_steps  jsonb := '[]';  -- steps: [scope, key, step]
  v_step   pawl.step;
  v_until  timestamptz;
begin
  -- Jobs first, because they lead to deliveries: the key as a job id, and owners of the key.
  if p_key ~ '^[1-9][0-9]{0,17}$' then
    select coalesce(array_agg(f.id), '{}')
      into v_jobs
      from (select j.id, j.queue from pawl.job as j where j.id = p_key::bigint
             union all
            (select a.id, a.queue from pawl_v1.archive as a where a.id = p_key::bigint limit 1)) as f (id, queue)
     where coalesce(f.queue = any (v_within), true);
    if v_jobs = '{}'
       and (exists (select from pawl.audit as a where a.target = 'job ' || p_key and coalesce(a.before ->> 'queue' = any (v_within), true))
            or exists (select from pawl.stale_write as w where w.kind = 'job' and w.key = p_key and coalesce(w.scope = any (v_within), true))) then
      v_jobs := array[p_key::bigint];
    end if;
  end if;

  return query
  select e.at, 'command', c.scope::text, c.key::text, e.event, e.detail
    from unnest(p_scopes) as s (name)
   cross join lateral (select o.* from pawl.command as o where o.scope = s.name and o.key = p_key limit 1) as c
   cross join lateral (
          values (c.created_at, 'claimed', jsonb_build_object('fingerprint', encode(c.hash, 'hex'))),
                 (case c.status when 'processing' then clock_timestamp() else c.updated_at end, c.status::text,
                  jsonb_strip_nulls(jsonb_build_object(
                    'attempts', c.attempts, 'fence', c.fence, 'claimed_by', c.claimed_by, 'lease_expires_at', c.lease_expires_at,
                    'response_status', c.response_status, 'response_octets', octet_length(c.response_body),
                    'result_octets', octet_length(c.result), 'result_ref_type', c.result_ref_type, 'result_ref_id', c.result_ref_id,
                    'failure_code', c.failure_code, 'failure_message', c.failure_message))),
                 (case when c.status in ('succeeded', 'failed_final') then c.expires_at end, 'memory_ends', '{}')) as e (at, event, detail)
   where e.at is not null;
  return query
  select w.at, w.kind, w.scope::text, w.key::text, 'stale_write_refused', jsonb_build_object('fence', w.fence, 'worker', w.worker)
    from unnest(p_scopes) as s (name)
   cross join lateral (
          select o.* from pawl.stale_write as o where o.kind = 'command' and o.key = p_key and o.scope = s.name order by o.fence limit 100) as w;

  v_jobs := v_jobs || array(select r.id from pawl_v1._refused_of(p_key, p_consumers, p_queues) as r (id));

  -- The job of a stored delivery names it in its headers. An enqueue key was inserted just before
  -- it.
  select coalesce(jsonb_agg(distinct jsonb_build_array(f.consumer, f.key)), '[]')
    into v_seen
    from (
      select i.consumer::text, i.key::text
        from unnest(p_consumers) as s (name)
       cross join lateral (select o.consumer, o.key from pawl.inbox as o where o.consumer = s.name and o.key = p_key limit 1) as i
       union all
      select d.consumer::text, d.key::text
        from unnest(p_consumers) as s (name)
       cross join lateral (select o.consumer, o.key from pawl.delivery as o where o.consumer = s.name and o.key = p_key limit 1) as d
       union all
      select substr(j.queue, length('inbox/') + 1), j.headers ->> 'pawl-inbox-key'
        from (select o.queue, o.headers from pawl.job as o where o.id = any (v_jobs)
               union all
              select o.queue, o.headers from pawl_v1.archive as o where o.id = any (v_jobs)) as j (queue, headers)
       where j.queue like 'inbox/%'
         and j.headers ->> 'pawl-inbox-key' is not null) as f (consumer, key);

  return query
  select e.at, 'delivery', i.consumer::text, i.key::text, e.event, e.detail
    from jsonb_array_elements(v_seen) as s (pair)
   cross join lateral (
          select o.* from pawl.inbox as o where o.consumer = s.pair ->> 0 and o.key = s.pair ->> 1 limit 1) as i
   cross join lateral (
          values (i.received_at, 'received', jsonb_strip_nulls(jsonb_build_object('fingerprint', encode(i.hash, 'hex'), 'job', i.job_id))),
                 (i.processed_at, 'processed', jsonb_strip_nulls(jsonb_build_object('result_ref', i.result_ref)))) as e (at, event, detail)
   where e.at is not null;
  return query
  select d.received_at, 'delivery', d.consumer::text, d.key::text, 'kept',
         jsonb_strip_nulls(jsonb_build_object('octets', octet_length(d.payload), 'verified_by', d.verified_by))
    from jsonb_array_elements(v_seen) as s (pair)
   cross join lateral (
          select o.* from pawl.delivery as o where o.consumer = s.pair ->> 0 and o.key = s.pair ->> 1 limit 1) as d;
  v_jobs := v_jobs || array(
    select i.job_id
      from jsonb_array_elements(v_seen) as s (pair)
     cross join lateral (
            select o.job_id from pawl.inbox as o where o.consumer = s.pair ->> 0 and o.key = s.pair ->> 1 limit 1) as i
     where i.job_id is not null);

  return query
  select g.held_at, 'gate', g.consumer::text, g.resource::text, 'held', jsonb_build_object('seq', g.seq, 'job', g.job_id)
    from jsonb_array_elements(v_seen) as s (pair)
   cross join lateral (select o.* from pawl.sequence_gate_held as o where o.consumer = s.pair ->> 0 and o.job_id = any (v_jobs)) as g;
  return query
  select e.at, 'gate', g.consumer::text, g.resource::text, e.event, e.detail
    from unnest(p_consumers) as s (name)
   cross join lateral (select o.* from pawl.sequence_gate as o where o.consumer = s.name and o.resource = p_key limit 1) as g
   cross join lateral (
          select clock_timestamp(), 'stands', jsonb_build_object('last', g.last)
           union all
          (select h.held_at, 'held', jsonb_build_object('seq', h.seq, 'job', h.job_id)
             from pawl.sequence_gate_held as h
            where h.consumer = g.consumer
              and h.resource = g.resource
            order by h.seq
            limit 100)) as e (at, event, detail);

  -- Enqueue keys: the key itself, those of events appended under it ("scope key type", each after
  -- its length), and that of a job given by its id.
  v_known := array(
    select s.name
      from unnest(p_scopes) as s (name)
     cross join lateral (select o.key from pawl.command as o where o.scope = s.name and o.key = p_key limit 1) as c
     union
    select s.pair ->> 0
      from jsonb_array_elements(v_seen) as s (pair)
     where s.pair ->> 1 = p_key);
  for at, scope, key, detail in
    select k.created_at, k.queue, k.key, jsonb_build_object('job', k.job_id, 'fingerprint', encode(k.hash, 'hex'), 'expires_at', k.expires_at)
      from unnest(p_queues) as s (name)
     cross join lateral (select o.* from pawl.job_key as o where o.queue = s.name and o.key = p_key limit 1) as k
     union
    select k.created_at, k.queue, k.key, jsonb_build_object('job', k.job_id, 'fingerprint', encode(k.hash, 'hex'), 'expires_at', k.expires_at)
      from unnest(p_queues) as s (name)
     cross join unnest(v_known) as w (scope)
     cross join lateral (
            select o.*
              from pawl.job_key as o
             where o.queue = s.name
               and o.key >= pawl_v1._joined(w.scope, p_key) || '0'
               and o.key < pawl_v1._joined(w.scope, p_key) || ':'
             order by o.key
             limit 100) as k
     where s.name like 'outbox/%'
     union
    select k.created_at, k.queue, k.key, jsonb_build_object('job', k.job_id, 'fingerprint', encode(k.hash, 'hex'), 'expires_at', k.expires_at)
      from (select o.id, o.created_at from pawl.job as o where o.id = any (v_jobs)
             union all
            select o.id, o.created_at from pawl_v1.archive as o where o.id = any (v_jobs)) as j (id, created_at)
     cross join lateral pawl_v1._key_of_job(j.id, j.created_at) as k
  loop
    kind := 'enqueue_key';
    event := 'taken';
    v_jobs := v_jobs || (detail ->> 'job')::bigint;
    v_until := (detail ->> 'expires_at')::timestamptz;
    detail := detail - 'expires_at';
    return next;
    at := v_until;
    event := 'memory_ends';
    detail := '{}';
    return next;
  end loop;
  v_jobs := array(select distinct u.id from unnest(v_jobs) as u (id));
  return query
  select s.* from pawl_v1._story_of_jobs(v_jobs) as s;

  for v_step in select e.* from pawl_v1._steps_of(p_key, v_jobs, p_owners) as e loop
    v_steps := v_steps || jsonb_build_array(jsonb_build_array(v_step.scope, v_step.key, v_step.step));
    return query
    select e.at, 'step', v_step.scope::text, v_step.key::text, e.event, jsonb_strip_nulls(jsonb_build_object('step', v_step.step) || e.detail)
      from (
        select v_step.created_at, 'planned',
               jsonb_build_object('recovery', v_step.recovery, 'provider', v_step.provider, 'provider_key', v_step.provider_key)
         union all
        select c.started_at, case when c.probe then 'asked' else 'called' end, jsonb_build_object('fence', c.fence)
          from pawl.step_call as c
         where c.scope = v_step.scope
           and c.key = v_step.key
           and c.step = v_step.step
         union all
        select c.ended_at, c.outcome::text, jsonb_build_object('fence', c.fence, 'reference', c.reference, 'error', c.detail ->> 'error')
          from pawl.step_call as c
         where c.scope = v_step.scope
           and c.key = v_step.key
           and c.step = v_step.step
           and c.ended_at is not null
         union all
        select case v_step.status when 'planned' then clock_timestamp() else v_step.updated_at end, v_step.status::text,
               jsonb_build_object('fence', v_step.fence, 'job', v_step.job_id, 'reference', v_step.reference, 'result_octets', octet_length(v_step.result),
                                  'failure_code', v_step.failure_code, 'failure_message', v_step.failure_message)
      ) as e (at, event, detail);
  end loop;

  -- Audit targets are one text. A deleted row is known only there, so query every name.
  return query
  select a.at, t.kind, t.scope, t.key, a.verb::text, jsonb_build_object('actor', a.actor, 'reason', a.reason)
    from (
      select 'command', s.name, p_key, pawl_v1._audit_target('command', s.name, p_key) from unnest(p_scopes) as s (name)
       union all
      select 'delivery', s.name, p_key, pawl_v1._audit_target('inbox', s.name, p_key) from unnest(p_consumers) as s (name)
       union all
      select 'delivery', s.pair ->> 0, s.pair ->> 1, pawl_v1._audit_target('inbox', s.pair ->> 0, s.pair ->> 1)
        from jsonb_array_elements(v_seen) as s (pair)
       where s.pair ->> 1 <> p_key
       union all
      select 'gate', s.name, p_key, pawl_v1._audit_target('gate', s.name, p_key) from unnest(p_consumers) as s (name)
       union all
      select 'step', s.step ->> 0, s.step ->> 1, pawl_v1._audit_target('step', s.step ->> 0, s.step ->> 1, s.step ->> 2)
        from jsonb_array_elements(v_steps) as s (step)
       union all
      select 'job', null, i.id::text, 'job ' || i.id from unnest(v_jobs) as i (id)) as t (kind, scope, key, target)
   cross join lateral (
          select o.at, o.verb, o.actor, o.reason
            from pawl.audit as o
           where o.target = t.target
           order by o.id desc
           limit 100) as a;
end
$$;

-- _owners_of returns the scopes of steps whose owner belongs to a scope. That is a command's scope,
-- a consumer, a queue, or a table of package guard with or without its schema. Of tables without
-- schema, it finds those among the first 500 scopes of steps.
create or replace function pawl_v1._owners_of(p_scope text)
returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
begin
  return array(
    select p_scope
     union
    -- As OwnerOf of the Go client names owners.
    select case when octet_length(k.kind || '/' || p_scope) <= 255 then k.kind || '/' || p_scope else pawl_v1._joined(k.kind, p_scope) end
      from unnest('{command,inbox,job,guard}'::text[]) as k (kind)
     union
    select n.name
      from unnest(pawl_v1._names('step', 'scope', 500)) as n (name)
     where n.name like 'guard/%'
       and right('.' || replace(substr(n.name, length('guard/') + 1), '"', ''), length(replace(p_scope, '"', '')) + 1) = '.' || replace(p_scope, '"', ''));
end
$$;

-- explain returns all that the tables and the audit have about a key, in the order of time:
-- requests, results, changes by operators, and when it will be purged. p_key is the key of a
-- command, a delivery, a job or an event, the id of a job, or the resource of a gate. The id of a
-- row of package guard leads to its steps. It reads by indexes only, changes nothing, and shows no
-- payload.
--
-- Related rows are included: the job of a delivery, the events of a command that were appended
-- under its key, the calls of a job. An event without a key of its own cannot be found by its id. A
-- delivery that came under the key with another payload is included as a dead letter. While it is
-- retried, it is included only if it is among the first 500 that were refused a key.
--
-- The last row has the kind 'looked'. Its detail has the number of 'scopes', 'consumers', 'queues'
-- and 'steps' (their owners) in which it looked. 'beyond' names those of which there were more than
-- 500.
--
-- Columns:
--   at                The time. A future time for planned events, null if there is none.
--   kind, scope, key  The subject: 'command', 'delivery', 'gate', 'enqueue_key', 'job' (its queue
--                     and id), 'step' (its owner's scope and key, the step in detail).
--   event             The status for the present state, the function for an operator's action
--                     (detail.actor, detail.reason), else the event.
--
-- Errors:
--   P4001, P4004  An argument.
--
-- Options:
--   scope  (text, default none) Look there only: a command's scope, a consumer, a queue, or a table
--          of package guard with or without its schema.
create or replace function pawl_v1.explain(p_key text, p_options jsonb default '{}')
returns table (at timestamptz, kind text, scope text, key text, event text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
set enable_seqscan = off -- every read has an index, even with bad statistics
set jit = off            -- with bad statistics, compiling takes a hundred times as long as reading
as $$
declare
  v_most      constant int := 500;
  v_scope     text := p_options ->> 'scope';
  v_scopes    text[] := array[v_scope];
  v_consumers text[] := array[v_scope];
  v_queues    text[] := array[v_scope];
  v_owners    text[];
  v_beyond    text[];
begin
  perform pawl_v1._check_options(p_options, '{scope}');
  perform pawl_v1._check_key('key', p_key);
  if v_scope is null then
    v_scopes := pawl_v1._names('command', 'scope', v_most + 1);
    v_queues := pawl_v1._names('job_key', 'queue', v_most + 1);
    v_owners := pawl_v1._names('step', 'scope', v_most + 1);
    v_consumers := array(
      select distinct n.name collate "C"
        from unnest(pawl_v1._names('inbox', 'consumer', v_most + 1) || pawl_v1._names('delivery', 'consumer', v_most + 1)
                    || pawl_v1._names('sequence_gate', 'consumer', v_most + 1)) as n (name)
       order by 1);
  else
    v_owners := pawl_v1._owners_of(v_scope);
  end if;
  v_beyond := array_remove(array[
    case when cardinality(v_scopes) > v_most then 'scopes' end,
    case when cardinality(v_consumers) > v_most then 'consumers' end,
    case when cardinality(v_queues) > v_most then 'queues' end,
    case when cardinality(v_owners) > v_most then 'steps' end], null);
  return query
  select s.at, s.kind, s.scope, s.key, s.event, s.detail
    from pawl_v1._story(p_key, v_scope, v_scopes[ : v_most], v_consumers[ : v_most], v_queues[ : v_most], v_owners[ : v_most]) with ordinality
           as s (at, kind, scope, key, event, detail, n)
   order by s.at nulls last, s.n;
  return query
  select null::timestamptz, 'looked', v_scope, p_key, 'looked', jsonb_build_object(
           'scopes', cardinality(v_scopes[ : v_most]), 'consumers', cardinality(v_consumers[ : v_most]),
           'queues', cardinality(v_queues[ : v_most]), 'steps', cardinality(v_owners[ : v_most]), 'beyond', to_jsonb(v_beyond));
end
$$;

-- Counts of what the purges would delete, and the audit record of a purge by hand.

-- _purge_cut_off checks the arguments of a purge and returns its cut-off. Later rows stay.
create or replace function pawl_v1._purge_cut_off(p_table text, p_options jsonb)
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_options(p_options, '{consumer,older_than_ms,unreported}');
  if (p_table in ('command', 'job_key', 'step', 'inbox', 'delivery', 'replay', 'fence')) is not true then
    raise exception 'no table of that name is purged: %', coalesce(p_table, 'null')
      using errcode = 'P4004', hint = 'known here: command, job_key, step, inbox, delivery, replay, fence';
  end if;
  if p_table in ('inbox', 'delivery') then
    perform pawl_v1._check_scope('consumer', p_options ->> 'consumer');
  end if;
  return pawl_v1._before(pawl_v1._int_option(p_options, 'older_than_ms',
           case when p_table in ('command', 'job_key', 'step') then 86400000 end, 0, 315360000000));
end
$$;

-- purge_count counts the rows that the purge of a table would delete now. p_table is 'command',
-- 'job_key', 'step', 'inbox', 'delivery', 'replay' or 'fence'. It reads the whole table.
--
-- Outcomes:
--   counted  The column due is the number of rows.
--
-- Errors:
--   P4004  The table or an option, or the age is shorter than a consumer remembers: see
--          inbox_purge.
--   P4000  The consumer's name.
--
-- Options:
--   consumer       (text, required of inbox and delivery) Its deliveries are counted.
--   older_than_ms  (0 to 10 years, required of inbox, delivery, replay and fence; else as of the
--                  purge) Younger rows do not count.
--   unreported     (boolean) As of inbox_purge.
create or replace function pawl_v1.purge_count(p_table text, p_options jsonb default '{}')
returns table (outcome text, due bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  v_consumer text := p_options ->> 'consumer';
  v_before   timestamptz := pawl_v1._purge_cut_off(p_table, p_options);
  v_due      bigint;
begin
  case p_table
    when 'command' then
      select count(*)
        into v_due
        from pawl.command as c
       where c.created_at < v_before
         and c.expires_at < clock_timestamp()
         and c.status in ('succeeded', 'failed_final');
    when 'job_key' then
      select count(*)
        into v_due
        from pawl.job_key as k
       where k.created_at < v_before
         and k.expires_at < clock_timestamp()
         and not exists (select from pawl.job as j where j.id = k.job_id);
    when 'step' then
      select count(*)
        into v_due
        from pawl.step as e
       where e.created_at < v_before
         and e.expires_at < clock_timestamp()
         and (e.status in ('succeeded', 'failed_final')
              or e.status = 'planned' and (pawl_v1._step_doubts(e)).calls = 0)
         and not exists (select from pawl.job as j where j.id = e.job_id)
         and not exists (
               select
                 from pawl.inbox as i
                 join pawl.job as j on j.id = i.job_id
                where i.consumer = substr(e.scope, length('inbox/') + 1)
                  and i.key = e.key
                  and e.scope like 'inbox/%')
         and not exists (
               select
                 from pawl.command as c
                where c.scope = substr(e.scope, length('command/') + 1)
                  and c.key = e.key
                  and e.scope like 'command/%'
                  and c.status not in ('succeeded', 'failed_final'));
    when 'inbox' then
      perform pawl_v1._check_promise(v_consumer, (p_options ->> 'older_than_ms')::bigint, coalesce((p_options ->> 'unreported')::boolean, false));
      select count(*)
        into v_due
        from pawl.inbox as i
       where i.received_at < v_before
         and i.consumer = v_consumer
         and not exists (select from pawl.job as j where j.id = i.job_id);
    when 'delivery' then
      select count(*)
        into v_due
        from pawl.delivery as d
       where d.received_at < v_before
         and d.consumer = v_consumer;
    when 'replay' then
      select count(*)
        into v_due
        from pawl.replay as r
       where r.updated_at < v_before
         and not exists (select from pawl.command as c where c.scope = r.scope);
    when 'fence' then
      select count(*)
        into v_due
        from pawl.fence as f
       where f.seen_at < v_before;
  end case;
  return query
  select 'counted', v_due, '{}'::jsonb;
end
$$;

-- purge_audit records a purge that you run by hand: one row in pawl.audit, with the verb 'purge'
-- and the target 'table NAME' or 'table NAME CONSUMER'. A purge runs in many transactions. Call
-- purge_audit with p_rows null before the first one. Call it with the count when the purge has
-- ended, also if it has stopped early. In Go, ops.Purge does this; on the command line, 'pawl
-- purge'. Consumers and workers do not record what they purge by themselves.
--
-- p_table and the options are those of purge_count. In the record, 'before' has the options,
-- 'table', 'cut_off' (no younger row was deleted) and 'rows'; 'after' is null.
--
-- Outcomes:
--   recorded  Done.
--   checked   p_rows is null: the arguments and your right to record are in order. No row is
--             written.
--
-- Errors:
--   P4000, P4004  An argument or an option.
--
-- Options:
--   consumer, older_than_ms, unreported
--             As of purge_count.
create or replace function pawl_v1.purge_audit(
  p_table   text,
  p_rows    bigint,
  p_actor   text,
  p_reason  text,
  p_options jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_cut_off timestamptz := pawl_v1._purge_cut_off(p_table, p_options);
begin
  perform pawl_v1._check_by(p_actor, p_reason);
  if p_rows is null then
    return query
    select 'checked', '{}'::jsonb;
    return;
  end if;
  perform pawl_v1._check_int('rows', p_rows, 0, 9223372036854775807);
  insert into pawl.audit (actor, verb, target, reason, before)
  values (p_actor, 'purge', pawl_v1._audit_target('table', variadic array_remove(array[p_table, p_options ->> 'consumer'], null)), p_reason,
          p_options || jsonb_build_object('table', p_table, 'cut_off', v_cut_off, 'rows', p_rows));
  return query
  select 'recorded', '{}'::jsonb;
end
$$;

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

insert into pawl.migration (version, name, min_client, api_hash)
values (1, 'init', 1, 'c5338d580b46d450b61647efab6a991c0e53f00eac33436bd5b8bda9340775fb');

do $$
begin
  perform pg_catalog.set_config('search_path', pg_catalog.current_setting('pawl.search_path'), true);
end
$$;

commit;
