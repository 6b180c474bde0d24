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
