-- Pawl's schema, generated from schema/. Apply with: psql -v ON_ERROR_STOP=1 -f pawl.sql

begin;
set local lock_timeout = '5s';

do $$
begin
  perform pg_catalog.set_config('pawl.search_path', pg_catalog.current_setting('search_path'), true),
          pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
end
$$;

-- The ledger of deliveries and the work table. Reasons for each choice: docs/decisions/0003-tables.md.
--
-- Every name that takes part in identity is text in collation "C" with a bound in octets: a collation that follows
-- the operating system's library changes under an upgrade, and an index that misses rows is a silent double.

-- Only who makes a schema needs CREATE on the database: IF NOT EXISTS asks for it in any case.
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

-- What a single column may hold is said by domains. A statement reads the CHECK constraints of a table from the catalogue and
-- parses them each time it runs; the checks of a domain are kept in memory, and run for columns that are written only.
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
create domain pawl.octets as bytea check (octet_length(value) <= 4194304); -- what is stored of an answer
create domain pawl.message as text collate "C" check (octet_length(value) <= 16000);

create table pawl.migration (
  version    int primary key,
  name       text not null,
  min_client int not null,       -- the oldest client version that understands this schema
  api_hash   text not null,      -- SHA-256 of the functions as installed
  applied_at timestamptz not null default clock_timestamp()
);

-- One row per worker process incarnation. It carries the lease of everything that process has claimed, so that
-- renewing is one narrow update, however many jobs are held.
create table pawl.worker (
  id           bigint generated always as identity primary key,
  name         pawl.name not null,
  queues       jsonb not null default '[]',    -- names of what it works on: if it dies, the death is one of these queues
  seen_at      timestamptz not null default clock_timestamp(),
  lease        interval not null default '30 seconds' check (lease between interval '1 second' and interval '12 hours'),
  presence     boolean not null default false, -- the process holds the advisory lock of its id: a free lock is evidence
  suspected_at timestamptz,                    -- when a sweep first found it silent and its lock free
  silence      interval not null default '0',  -- the longest between two heartbeats; after an hour the next one
  silence_at   timestamptz,                    -- when it ended
  report       jsonb,                          -- what it says of itself, for pawl doctor; null: nothing
  alone_job    bigint,                         -- the job that runs with nothing beside it in the process; null: none
  alone_fence  bigint,                         -- of the attempt: a mark that outlives it says nothing of the next
  check ((alone_job is null) = (alone_fence is null))
) with (fillfactor = 50);

-- Attempts that their worker is to end: the job was cancelled, or recalled. The next heartbeat takes them along. They are not a column of
-- pawl.worker, because a heartbeat would then wait for every transaction that cancels a running job and stays open.
create table pawl.recall (
  id        bigint generated always as identity,
  worker_id bigint not null,
  job_id    bigint not null,
  fence     bigint not null, -- of the attempt: a later one by the same worker is left alone
  primary key (worker_id, id)
);

-- The last death of a process that worked on a queue. One row a queue, never purged.
create table pawl.death (
  queue   pawl.name primary key,
  died_at timestamptz not null
);

-- What processes have counted, for charts: see rollup_add. Minutes of the last 24 hours, and hours of the last 7 days.
create table pawl.rollup (
  span   text collate "C" not null check (octet_length(span) < 64 and span in ('minute', 'hour')),
  at     timestamptz not null,             -- when it began
  kind   text collate "C" not null check (octet_length(kind) < 64 and kind in ('count', 'level')), -- counts are summed up, of levels the highest is kept
  source text collate "C" not null check (octet_length(source) < 64 and source in ('queue', 'consumer')),
  scope  text collate "C" not null check (octet_length(scope) <= 255), -- the name of a queue or consumer; empty: of none
  name   text collate "C" not null check (octet_length(name) <= 40),
  value  bigint not null check (value >= 0),
  primary key (span, at, kind, source, scope, name)
) with (fillfactor = 70);

-- Attempts that came back after their work was taken over, and were refused: see stale_write_add. Those of the last 7 days.
create table pawl.stale_write (
  kind   text collate "C" not null check (octet_length(kind) < 64 and kind in ('job', 'command')),
  scope  pawl.name not null,               -- of a job its queue
  key    pawl.name not null,               -- of a job its id
  fence  bigint not null,                  -- of the attempt that was refused
  worker pawl.name not null,
  at     timestamptz not null default clock_timestamp(),
  primary key (kind, key, scope, fence)
);
create index stale_write_at on pawl.stale_write (at);

-- Fences of commands, calls and schedules, one sequence for all: a key that was purged and came again must not meet the fence of its
-- former life. Cache 1, because numbers that sessions keep in stock would be issued out of order.
create sequence pawl.fence_seq cache 1;

-- One for all lanes, so that a lane's row can be purged without losing its order.
create sequence pawl.position_seq;

-- Lanes: jobs of one lane run one at a time, in the order of their positions. Whoever changes what is first in a lane
-- updates its row before looking: a lock alone would let a REPEATABLE READ transaction act on an old snapshot.
create table pawl.lane (
  id     bigint generated always as identity primary key,
  ver    bigint not null default 0,
  kept   boolean not null default false,    -- its policy was set by hand: not to be purged
  queue  pawl.name not null,
  name   pawl.name not null,
  policy text collate "C" not null default 'block' check (octet_length(policy) < 64 and policy in ('block', 'park', 'skip')),
  unique (queue, name)
) with (fillfactor = 50);

-- Durable work: stored deliveries, background jobs, later outbox events. Finished rows are deleted, or go to the archive.
create table pawl.job (
  id               bigint generated always as identity primary key,
  fence            bigint not null default 0,   -- + 1 at every claim and at every change by hand, never back
  claimed_by       bigint,                      -- while processing: worker.id, or 0 for a lease of the row's own
  lane_id          bigint,
  position         bigint,                      -- in its lane
  available_at     timestamptz not null default clock_timestamp(),
  lease_expires_at timestamptz,                 -- of a row claimed without a worker; not indexed
  created_at       timestamptz not null default clock_timestamp(),
  priority         pawl.priority not null default 2,
  attempts         pawl.count not null default 0,
  crashes          pawl.count not null default 0, -- deaths at which it was in hand
  crashes_alone    pawl.count not null default 0, -- of these, the ones at which nothing else was
  max_attempts     pawl.max_attempts not null default 25,
  batch_end        bigint,                      -- the last position of the batch that it heads; negative: it and those up to there go alone
  lane_head        boolean not null default false, -- its turn: nothing else of its lane may run. In a lane so are pending,
                                                -- processing and unknown; a dead letter that has it blocks the lane
  status           pawl.job_status not null default 'pending',
  queue            pawl.name not null,
  kind             pawl.name not null,
  payload          bytea not null,              -- exact octets, so that no encoding can change or refuse them
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

-- No predicate here may be implied by the WHERE of finish or renew: the planner would run them through it, over all
-- its dead entries.
create index job_claim on pawl.job (queue, priority, available_at, id) where status = 'pending';
create index job_held  on pawl.job (claimed_by) where claimed_by is not null;
create index job_wait  on pawl.job (lane_id, position) where status = 'waiting';
create unique index job_head on pawl.job (lane_id) where lane_head;
create index job_aside on pawl.job (lane_id) where lane_id is not null and status in ('dead_letter', 'cancelled') and not lane_head;
create index job_dead  on pawl.job (queue, id) where status in ('dead_letter', 'unknown', 'cancelled');
create index job_letter on pawl.job (queue, (left(headers ->> 'pawl-key', 255)) collate "C", id) -- a key that was refused may be longer than an index takes
  where status in ('dead_letter', 'unknown', 'cancelled') and headers ->> 'pawl-key' is not null;
create index job_begun on pawl.job (queue, priority, available_at, id) where status = 'pending' and (attempts > 0 or crashes > 0);

-- What was set for a queue by hand; no row means the defaults.
create table pawl.queue (
  id      bigint generated always as identity, -- its name in the audit
  name    pawl.name primary key,
  archive boolean not null default false,      -- finished jobs are kept, for seven days
  mode    text collate "C" not null default 'running' -- what of it may be claimed
    check (octet_length(mode) < 64 and mode in ('running', 'draining', 'paused'))
);

-- What is to be enqueued when. Keepers enqueue the ticks, any number of them at once. In a name there must be room for the time: both
-- together are the key of a tick.
create table pawl.schedule (
  name       text collate "C" primary key check (octet_length(name) between 1 and 200),
  fence      bigint not null default nextval('pawl.fence_seq'), -- another at every change: who has an older one has seen another row
  next_at    timestamptz,                -- the next tick; null: a keeper that reads cron is to say it
  since_at   timestamptz not null default clock_timestamp(), -- no tick up to here is owed any more
  last_at    timestamptz,                -- the last tick that was enqueued
  created_at timestamptz not null default clock_timestamp(),
  every_ms   bigint check (every_ms between 100 and 31536000000),
  paused     boolean not null default false,
  cron       pawl.name,
  time_zone  pawl.name,                  -- in which the cron expression is read
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

-- The archive is a ring: a job that finishes on day n since 1970, in UTC, goes to table n modulo 8, which archive_sweep empties
-- before its day comes again. Nothing in it is unique: what keeps a copy must never refuse a finish.
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

-- Purges walk the indexes of ages in order: docs/decisions/0036-purging.md.

-- The memory of enqueue keys. It outlives the job, so that a duplicate enqueued after completion is still one.
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

-- The row exists if and only if the effect committed (job_id null) or a durable job owns the delivery.
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

-- For how long consumers promise to remember deliveries, as they said themselves.
create table pawl.consumer (
  name       pawl.name primary key,
  window_ms  bigint check (window_ms > 0),  -- null: for ever
  horizon_ms bigint check (horizon_ms > 0), -- how long after it was sent a message may be delivered; null: the source does not know
  seen_at    timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- What purges have made consumers forget. A consumer without a row, or without a time, remembers all that it has ever seen.
create table pawl.forgotten (
  consumer pawl.name primary key,
  ver      bigint not null default 0, -- updated by whoever promises to remember, and by whoever makes forget, before it looks
  until    timestamptz                -- what came first at this time or earlier may be forgotten; what came later is not
) with (fillfactor = 50);

-- Deliveries as they came. Which are kept, and for how long, is each consumer's choice.
create table pawl.delivery (
  consumer    pawl.name not null,
  key         pawl.name not null,  -- as in the inbox
  received_at timestamptz not null default clock_timestamp(),
  headers     jsonb,
  payload     pawl.octets not null,
  verified_by pawl.name,           -- what proved who sent it
  hash        pawl.hash,           -- as in the inbox; null, as the next: nobody can replay it
  stored_as   jsonb,               -- how it would be stored: queue, kind, headers, lane, semantic (its second key in the inbox)
  primary key (consumer, key)
);

create index delivery_age on pawl.delivery (consumer, received_at);

-- Sequence gates: the last number that took effect. Never purged by age.
create table pawl.sequence_gate (
  consumer pawl.name not null,
  resource pawl.name not null,
  ver      bigint not null default 0, -- updated by whoever looks
  last     bigint,                    -- null: nothing yet, and of a strict gate: nobody has said where to begin
  primary key (consumer, resource)
) with (fillfactor = 50);

-- Deliveries that came before those that must take effect first. Each is a job, not due before its time is over.
create table pawl.sequence_gate_held (
  consumer pawl.name not null,
  resource pawl.name not null,
  seq      bigint not null,
  job_id   bigint not null,
  held_at  timestamptz not null default clock_timestamp(),
  primary key (consumer, resource, seq, job_id)
);

-- What callers asked to happen once, and the answer that everyone who asks again gets. In the one-transaction form nobody
-- sees the row before its end, and lease_expires_at stays null, so that the end is a HOT update.
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
  expires_at       timestamptz not null,       -- end of the memory; counted again from the end of the command
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

-- No statement that names a command may say anything of its lease in WHERE: it could be run through this index.
create index command_stale on pawl.command (lease_expires_at) where lease_expires_at is not null;
create index command_age on pawl.command (created_at);

-- Answers given again, counted by whoever gives them: a replay itself writes nothing.
create table pawl.replay (
  scope      pawl.name primary key,
  replays    bigint not null check (replays >= 0),
  updated_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- Calls of others' systems, each a step of a job, a delivery or a command: what is known of it, and what may be done next.
create table pawl.step (
  scope           pawl.name not null,
  key             pawl.name not null,
  step            pawl.name not null,
  hash            pawl.hash not null,         -- of the request; never changes
  fence           bigint not null default 0,  -- of the newest call or probe
  cleared         bigint not null default 0,  -- calls up to this fence are known not to have been executed
  job_id          bigint,                     -- the job that waits for a verdict
  memory_ends_at  timestamptz,                -- keyed: until then the provider is sure to know the key
  created_at      timestamptz not null default clock_timestamp(),
  updated_at      timestamptz not null default clock_timestamp(),
  expires_at      timestamptz not null,       -- end of the memory; counted again from the end
  status          pawl.step_status not null default 'planned',
  recovery        pawl.step_recovery not null,
  provider        pawl.name,                  -- for people, and for those who settle what is unknown
  provider_key    pawl.name not null,         -- the idempotency key that each call carries
  reference       pawl.name,                  -- the provider's name for what it made
  result          pawl.octets,
  failure_code    pawl.name,
  failure_message pawl.message,
  primary key (scope, key, step),
  check (expires_at > created_at)
) with (fillfactor = 80);

create index step_unknown on pawl.step (job_id) where status = 'unknown';
create index step_age on pawl.step (created_at);

-- What was seen of each call: evidence, taken from any attempt, however late.
create table pawl.step_call (
  fence      bigint primary key,
  scope      pawl.name not null,
  key        pawl.name not null,
  step       pawl.name not null,
  probe      boolean not null,              -- it only asked whether an earlier one was executed
  started_at timestamptz not null default clock_timestamp(),
  not_after  timestamptz not null,          -- nothing is sent later than this
  ended_at   timestamptz,
  outcome    pawl.call_outcome,             -- null: nobody said; the process may have died
  reference  pawl.name,
  detail     jsonb not null default '{}',   -- error, code, and what was seen of the exchange; never bodies
  check ((outcome is null) = (ended_at is null))
);

create index step_call_of on pawl.step_call (scope, key, step);

-- The highest fence each resource has seen, for rows that no job row guards.
create table pawl.fence (
  resource pawl.name primary key,
  fence    bigint not null,
  seen_at  timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- Who changed what by hand, and why. Written in the transaction of the change; nothing deletes from it.
create table pawl.audit (
  id     bigint generated always as identity primary key,
  at     timestamptz not null default clock_timestamp(),
  actor  pawl.name not null,
  verb   text collate "C" not null check (octet_length(verb) between 1 and 63),    -- the function: 'job_retry'
  target pawl.name not null,         -- 'job 17'
  reason text collate "C" not null check (octet_length(reason) between 1 and 4000),
  before jsonb not null,             -- the row without its payload, of which the length and the SHA-256 stay
  after  jsonb                       -- null: deleted
);

create index audit_target on pawl.audit (target, id);

-- Checks shared by the functions below. They raise; they never repair.
--
-- Each is an expression, which the planner puts in place of the call, and calls a function only to say what is wrong: to call a function
-- with a search_path of its own costs as much as all the checks of a statement. Those functions say that they cost little, since they are
-- not called as a rule: for a dear one the server plans a statement anew at each call, to be rid of it.

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
    using errcode = 'P4001', hint = 'hash a longer key, for instance encode(sha256(...), ''hex'')';
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
  raise exception 'payload must have at most 4194304 octets, they have %', coalesce(octet_length(p_payload)::text, 'none')
    using errcode = 'P4004', hint = 'store a large payload elsewhere and enqueue its reference';
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

-- Null passes: there are none.
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

-- Null passes: it means the default.
create or replace function pawl_v1._check_int(p_what text, p_value bigint, p_min bigint, p_max bigint)
returns void
language sql
immutable
return case when p_value not between p_min and p_max then pawl_v1._refuse_int(p_what, p_value, p_min, p_max) end;

-- The moment so many milliseconds ago.
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

-- From where a purge looks on: option since, else everything.
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

-- Arrays that describe one batch must be equally long.
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

-- An integer option with bounds. Absent or null means the default. Most options are absent most of the time.
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

-- An option in milliseconds.
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

-- An option that is an array of texts. Absent or null means null.
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

-- Refuses options the function does not know: a misspelt one must not be ignored in silence.
create or replace function pawl_v1._check_options(p_options jsonb, p_known text[])
returns void
language sql
immutable
return case
  when case jsonb_typeof(p_options) when 'object' then p_options - p_known = '{}' end then null
  else pawl_v1._refuse_options(p_options, p_known)
end;

-- What an operator's change is about, as pawl.audit names it: a kind and names, whole if they fit, else the kind and a hash of the
-- names. Lengths count in octets, as the bound of the target does. The record beside it holds the names whole.
create or replace function pawl_v1._audit_target(p_kind text, variadic p_names text[])
returns text
language sql
stable
return case
         when octet_length(p_kind || ' ' || array_to_string(p_names, ' ')) <= 255 then p_kind || ' ' || array_to_string(p_names, ' ')
         else p_kind || ' ' || encode(sha256(convert_to(to_jsonb(p_names)::text, 'UTF8')), 'hex')
       end;

-- Whether this transaction wrote a row that it sees, in whichever savepoint: the writer of a visible row is in progress only if it is this
-- transaction. p_xmin is the row's xmin, 32 bits of a transaction id. age() would not do: its reference point is frozen at its first call
-- in a transaction.
create or replace function pawl_v1._is_ours(p_xmin xid)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_top   bigint := pg_current_xact_id_if_assigned()::text::bigint; -- null: this transaction has written nothing
  v_ahead bigint := (p_xmin::text::bigint - v_top) & 4294967295;    -- savepoints have later ids than their transaction
begin
  -- Older than this transaction.
  if v_top is null or v_ahead >= 2147483648 then
    return false;
  end if;
  -- Of an id behind its snapshot a transaction knows nothing: it may be that of a savepoint of its own, or belong to a row that was frozen
  -- so long ago that its 32 bits have come round, and lie ahead of all ids in use. Then the server refuses to look.
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
-- A COMMIT that waits for a synchronous standby stops waiting when it is cancelled, when its backend is terminated, and when the
-- server restarts. Its rows are then visible here, and may never reach the standby. A transaction that reads such a row and writes
-- nothing waits for nobody: its answer would survive a failover that its row does not.

-- _unproved writes a WAL record in the transaction that gives the answer, so that its COMMIT waits
-- until everything before it is replicated. A transaction id alone does not: without WAL, COMMIT
-- waits for nothing. Callers test synchronous_standby_names themselves, so that without synchronous
-- standbys nothing is called.
--
-- The answer names the server, by the time at which it started: only a COMMIT on the same server
-- proves what was read on it. After a failover a connection to the promoted server proves nothing
-- about what the old primary showed.
create or replace function pawl_v1._unproved()
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_is_in_recovery() then
    raise exception 'a standby cannot prove that this answer is replicated'
      using errcode = '25006', hint = 'ask the primary';
  end if;
  perform pg_logical_emit_message(true, 'pawl', '');
  return jsonb_build_object('unproved', extract(epoch from pg_postmaster_start_time())::text);
end
$$;

-- 55P03 says that a lock was not had in time, and not which: that on a row, which another transaction works on, or that on the whole
-- table, which CREATE INDEX, REINDEX, VACUUM FULL and ALTER TABLE take. The first is about one message, the second about all.

-- _table_locked returns a table of these that nothing can be written to now, or null.
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
        null; -- the caller does not write to it
      when lock_not_available then
        return v_table;
    end;
  end loop;
  return null;
end
$$;

-- Logical replication copies rows and leaves sequences where they are. A fence that is given out a second time lets an old attempt
-- pass for the newest, and a step that is in doubt be called again.

-- _sequences_behind returns the sequences whose next number a table holds already. It looks at p_rows rows of a table that has no
-- index on the number, or at all of them if p_rows is null: after a copy nearly every row is ahead.
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

-- Guards for work that no row of Pawl's stands for, inside your own transaction.

-- Locks a name until the transaction ends, without waiting: one run at a time of what no row represents, such as the
-- close of a merchant's day or the import of one file. It does not remember that the work was done: never use it in
-- place of a constraint or a key. Names are hashed to 64 bits; a collision refuses for nothing, it never lets two in.
-- outcome 'locked', or 'busy': another transaction has the name now.
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

-- Accepts a write to a resource if no newer attempt wrote to it: call it first in the transaction that writes. The row
-- stays locked until that ends. A fence is compared with others of one source only, so name the source in the resource:
-- 'job 17 report', not 'report'.
-- outcome 'accepted' (the same fence may come again). P4020: a higher one was here.
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

-- Forgets the fences of resources that nobody has written to for p_older_than_ms, at most p_limit of them (1 to 100000). An attempt
-- that is older than that and still runs is then accepted: choose days, not minutes.
-- outcome 'purged'.
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

-- Claims a delivery as the first statement of the handler's transaction. The row commits with the handler's rows or
-- not at all.
--
-- outcome 'processed': this transaction owns the delivery; do the work and commit.
-- outcome 'duplicate_ignored': an earlier transaction committed it, or a durable job owns it (job_id); do nothing, commit, and
-- acknowledge. result_ref is what the first one stored. detail.unproved: COMMIT waits for the synchronous standbys.
-- P4002: the same key came with another payload. 55P03: another transaction is processing it right now; roll
-- back and leave the message for later, never acknowledge it.
--
-- outcome 'behind', with option lane only: as 'processed', but something of the lane is still open; call inbox_store.
--
-- options: result_ref text, stored with the row; lane text with queue text: the lane in which inbox_store would put the
-- delivery, locked until this transaction ends, so that deliveries of one lane come one at a time; lane_policy (of a lane that
-- is new: block, park or skip; default block).
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
  -- Four calls cost a tenth of a claim (pgbench, 16 clients), so they are made only to say what is wrong.
  if (octet_length(p_consumer) between 1 and 255 and octet_length(p_key) between 1 and 255
      and octet_length(p_hash) = 32 and p_options = '{}') is not true
  then
    perform pawl_v1._check_scope('consumer', p_consumer), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
            pawl_v1._check_options(p_options, '{result_ref,lane,queue,lane_policy}');
    -- Before the delivery, so that whoever owns one of a lane already is either done with it or has stored it.
    if p_options ? 'lane' then
      v_lane := (pawl_v1._lanes_enter(array[p_options ->> 'queue'], array[p_options ->> 'lane'], p_options))[1];
    end if;
  end if;

  -- Insert or observe. The second statement has a snapshot of its own and so sees the winner; the loop is for a row
  -- that was forgotten in between.
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
             case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unproved() end;
      return;
    end if;
  end loop;
  raise exception 'message % of consumer % keeps appearing and disappearing', p_key, p_consumer
    using errcode = '40001', hint = 'restart the transaction';
end
$$;

-- Claims up to 1000 deliveries of one consumer in one statement; hashes[i] belongs to keys[i]. Keys are claimed in
-- their sorted order, so that two batches cannot deadlock. One delivery cannot spoil the others: what inbox_claim raises, this
-- answers by a row.
--
-- n counts from 1. outcome 'processed' and 'duplicate_ignored' as of inbox_claim; a message id twice in one batch is a
-- duplicate of its first row. 'mismatch': P4002 there (detail: stored_hash, given_hash). 'in_progress': 55P03 there; leave it
-- for later, never acknowledge it.
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
  v_proof jsonb := '{}';
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
      -- Another transaction has one of them. Each is asked for by itself, so that only that one is left out.
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
    v_proof := pawl_v1._unproved();
  end if;
  -- A statement of its own, which sees the winners. Who is not seen is somebody's who has not ended, or was forgotten just now.
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
           else v_proof
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

-- Hands a delivery that this transaction claimed over to a durable job, which retries it from the database.
-- Call it after rolling back to the savepoint set behind inbox_claim, in the same transaction: nobody can win in
-- between. The delivery may then be acknowledged; the payload of the job is p_payload.
--
-- options: attempts (default 1: the try that failed), crashes (default 0; 1 makes the job run alone),
-- max_attempts, retry_in_ms (default 0), headers object, error object, dead boolean (straight to the dead letters), lane text
-- (behind what is open in it; as of inbox_claim), lane_policy.
-- outcome 'stored' or 'dead_letter'. P4020: the row was not claimed in this transaction.
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

  -- A row that another transaction committed took effect and must not run again.
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

-- Marks a stored delivery processed, in the transaction that holds its job and applies its effect.
-- outcome 'processed'. P4020: the job does not own the delivery any more (it was forgotten by an operator), so this
-- transaction must not commit.
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

-- Reserves a key of the inbox for a job that is about to work for it with no transaction open, such
-- as a consumer's second name of a delivery. Call it in a transaction that has proved the attempt
-- (job_hold), and commit before the work begins. The row says that the job works for the key, not
-- that it took effect: take the effect's key with inbox_claim in the transaction that writes it,
-- and call inbox_unreserve there.
--
-- The reservation ends with the attempt: the next job takes it over unless the job that has it is
-- being worked on, or waits for a verdict on a step.
-- outcome 'reserved', or 'in_progress': job_id has it; leave the work for later (detail.status: of
-- that job). 55P03: another transaction has the row for more than 50 ms.
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
  -- The row is updated even if the job has it already, so that a takeover by an older snapshot gets
  -- 40001.
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

-- Gives up what inbox_reserve has reserved, in the transaction that ends the work.
-- outcome 'unreserved', or 'absent': the job did not have it.
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

-- The inbox over time: promises to remember, purge, forgetting by hand.

-- Says for how long a consumer remembers its deliveries; null: for ever. Say it when you start, and once a minute from then on: of several
-- programs that say it, the longest holds, and what is shorter takes its place when the longer was not said for ten minutes.
--
-- options: horizon_ms (how long after it was sent a message may be delivered; default: nobody knows).
-- outcome 'reported', or 'outlasted': another program has said longer. window_ms: what holds; null: for ever. detail.forgotten_until: as of
-- inbox_memory, absent if nothing was ever forgotten. From then on no purge makes the consumer forget what is younger than window_ms.
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

-- Locks the memory of a consumer until the transaction ends, and returns until when it has forgotten. A report enters it behind its promise, and
-- a purge before it looks at the promise: so the purge sees the promise, or the report hears of the purge. It updates the row, since a lock
-- alone is not seen by a transaction that has an older snapshot (docs/decisions/0012-lanes.md).
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

-- Says until when a consumer has forgotten what it has seen. Ask in the transaction of inbox_claim, behind an answer 'processed', before you
-- handle a delivery that may be old. If it was sent at forgotten_until or earlier, it may have taken effect before and be forgotten. If it was
-- sent later, or outcome is 'whole', it has not. Allow for the clock of the sender, which may be ahead.
--
-- A purge deletes rows and says so here in one transaction. So whoever finds a row gone can read how far that purge went, but not in a snapshot
-- that is older than the purge. Above READ COMMITTED such a transaction is told 40001: an insert that would overlook a younger version of the row
-- is refused, and is taken back.
--
-- outcome 'whole': no purge has ever deleted a delivery of it, forgotten_until is null; or 'forgotten'. 40001: restart the transaction.
-- 55P03: a purge is under way; roll back and leave the message for later.
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
      when raise_exception then null; -- the row is taken back
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

-- Refuses to forget what a consumer has promised to remember. One that was not seen for as long as that, or for 28 days if it is for
-- ever, has retired: all that it has seen is older. One that never reported is believed to need 14 days, the longest that SQS keeps a
-- message, unless p_unreported.
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

-- Checks what a purge is told, and returns from when on all stays.
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

-- Forgets deliveries of a consumer that came first longer ago than p_older_than_ms, at most p_limit of them (1 to 10000): call it
-- until it answers less. What a job still owns stays, dead letters included. It passes by locked rows, and waits for
-- another purge or a report of the consumer, 2 s at most. No claim waits for it longer than one batch takes: keep that below the 50 ms of
-- inbox_claim. inbox_memory tells how far it went.
--
-- p_older_than_ms: longer than the longest time after which a delivery may come again, or it runs again as new; P4004 if it is shorter
-- than consumer_report was told, or than 14 days if it was told nothing.
-- options: since: see job_key_purge. unreported (default false): also sooner than 14 days if consumer_report was told nothing.
-- outcome 'purged'; detail.next: see job_key_purge.
create or replace function pawl_v1.inbox_purge(p_consumer text, p_older_than_ms bigint, p_limit int default 1000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- it walks the index of ages in order: see docs/decisions/0036-purging.md
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
  select array_agg(d.ctid), max(d.received_at) -- their places: see job_key_purge
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

-- Forgets one delivery by hand, so that the same message, when it comes again, runs as new. Nothing else runs a delivery past the
-- inbox. It leaves a record in pawl.audit. What was kept of the delivery as it came stays, for inbox_replay. If the delivery was kept, its
-- second name in the inbox, under which it took effect, is forgotten too.
--
-- options: processed_at text or null: when the delivery had taken effect, as you saw it (null: it had not). If it took effect since, or
-- anew, it stays.
-- outcome 'forgotten'; 'refused': a job owns the delivery (detail: job, status, hint); 'moved': detail.processed_at is another; 'absent'. 55P03: an open transaction has the
-- row for more than 2 s; nothing changed.
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
  -- The owner changes only with the row, which is locked; whoever finishes it has settled the row before.
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
   where i.consumer = p_consumer -- locked since its owner was looked at
     and i.key = p_key;
  -- Its second name, if it was this delivery that took effect under it: else what is sent again would be a duplicate of itself.
  delete from pawl.inbox as i
   using pawl.delivery as d
   where d.consumer = p_consumer
     and d.key = p_key
     and i.consumer = p_consumer
     and i.key = d.stored_as ->> 'semantic'
     and i.result_ref = p_key;
  insert into pawl.audit (actor, verb, target, reason, before)
  values (p_actor, 'inbox_forget', pawl_v1._audit_target('inbox', p_consumer, p_key), p_reason, to_jsonb(v_seen));
  return query
  select 'forgotten', '{}'::jsonb;
end
$$;

-- Sequence gates: per consumer and resource, the last number that took effect.
--
--            latest                                      strict
--   n > last   passed, last = n               n = last + 1   passed, last = n; who is held next is promoted
--   n <= last  stale: drop it                 n <= last      stale: drop it
--                                             n > last + 1   early: sequence_gate_hold, until the gap is closed, or somebody decides
--
-- Whoever passes and whoever holds has updated the gate's row first, and keeps it until its transaction ends: so either the one
-- who passes sees whom to promote, or the one who would hold sees that it may pass. Gates are never purged by age: a forgotten
-- one would let an old number pass.

-- Updates the row of a gate, which is made if there is none, and locks it until this transaction ends.
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

-- Makes due whoever is held up to p_seq. The caller has updated the gate's row. A job whose row is locked, by its own attempt or an
-- operator, is not waited for: its attempt waits for the gate, and finds it open.
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
  -- Those whose job is gone, discarded by an operator, go as well.
  delete from pawl.sequence_gate_held as h
   where h.consumer = p_consumer
     and h.resource = p_resource
     and h.seq <= p_seq
     and (h.job_id = any (v_free) or not exists (select from pawl.job as j where j.id = h.job_id));
  return v_promoted;
end
$$;

-- Asks whether a delivery with this number may take effect now: first statement of its handler, behind the savepoint, so that a
-- failure closes the gate again.
--
-- options: mode, 'latest' or 'strict' (required); first bigint: of a strict gate, the number that comes first; without it all are
-- early until sequence_gate_reset says where to begin; hold_limit (default 1000, up to 1000000): how many a strict gate holds.
-- outcome 'passed', 'stale', 'early' (call inbox_store and sequence_gate_hold), 'full' (early, and as many are held as may be: make
-- a dead letter of it). last: the number that took effect last, before this one; null if none. detail.next_held: the lowest number
-- that is held. 55P03: another transaction has the gate for longer than 2 s.
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

-- Notes that this job holds a delivery that sequence_gate_pass, in this transaction, found early. Whoever passes with the number before
-- makes the job due.
-- outcome 'held'.
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

-- Holds a delivery that a job, in its own transaction, found early: a copy of the job takes it over, and this one is to be finished in
-- the same transaction, which keeps the gate until then. A job that was merely given back could be overlooked by whoever passes
-- meanwhile. The attempt is not charged. The copy is in no lane: there it would stop those whom it waits for.
--
-- options: retry_in_ms (default 0): not due before, unless it is promoted.
-- outcome 'held'. job_id: the copy. P4020: the job does not own the delivery.
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

-- Says where a gate stands: the next number is p_last + 1. For a strict gate without a beginning, for one whose gap will not be
-- closed, or after a sender has begun its numbers anew. It leaves a record in pawl.audit.
--
-- options: from bigint or null: where the gate stood when you looked. If it has moved since, setting it back would let numbers pass again.
-- outcome 'reset'. detail: before, promoted (how many that were held are due now). 'moved': detail.before is where it stands.
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

-- Gives up the numbers that are missing before the lowest that is held, which is due then. It leaves a record in pawl.audit. What was
-- given up and comes after all is stale.
--
-- options: next_held bigint: the lowest number that was held when you looked. If another one is, the gap is another too.
-- outcome 'released' (detail: before, last); 'idle': nothing is held; 'moved': detail.next_held is what is held now.
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

-- Gates, and what is held at each since when: a gap that may need somebody. Counts the held of every gate it shows.
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

-- Deliveries as they came: for replays, as evidence of mismatches, and for whoever reconciles.

-- Keeps a delivery as it came, in the transaction that claims it in the inbox, under the same key.
--
-- options: headers object (those that may be kept), verified_by text (1 to 255 octets: what proved who sent it); for inbox_replay, hash
-- text (of the claim, in hexadecimal) and stored_as object (queue and kind, required; headers, lane, lane_policy and max_attempts, as of
-- inbox_store; semantic: the inbox key that stands for its second name).
-- outcome 'kept', or 'present': it was kept before. P4004: the payload has more than 4 MiB.
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

-- Deletes what was kept of a consumer's deliveries longer ago than p_older_than_ms, at most p_limit of them (1 to 10000).
-- options: since: see job_key_purge.
-- outcome 'purged'; detail.next: see job_key_purge.
create or replace function pawl_v1.delivery_purge(p_consumer text, p_older_than_ms bigint, p_limit int default 1000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- it walks the index of ages in order: see docs/decisions/0036-purging.md
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
  select array_agg(o.ctid), max(o.received_at) -- their places: see job_key_purge
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

-- Waking workers that sleep. A worker that finds its queue empty for a while takes an exclusive advisory lock on its presence connection. A
-- function that makes a job due tries that lock shared, gives it back at once, and notifies only if it was taken. So an enqueue notifies only
-- while a worker sleeps, and commits do not queue for the lock of NOTIFY. It is a hint: a worker that misses it polls.
--
--   worker   polls a few times · worker_asleep: the lock · polls once more · waits for a notification or its next poll
--   enqueue  insert · the lock, shared: free, no worker sleeps · COMMIT
--            insert · the lock, shared: taken, so NOTIFY        · COMMIT ──▶ worker: worker_awake, polls

-- The second number of the lock of a queue, whose first is 1885435767, and what notifications on pawl_jobs carry. Queues that share a number
-- wake each other's workers in vain.
create or replace function pawl_v1._wake_key(p_queue text)
returns int
language sql
immutable
return hashtext(p_queue);

-- Whether a worker of the queue sleeps. One expression: were the call cut between lock and unlock, the session would keep the lock.
create or replace function pawl_v1._asleep(p_queue text)
returns boolean
language sql
volatile
return case
    when pg_try_advisory_lock_shared(1885435767, pawl_v1._wake_key(p_queue))
      then not pg_advisory_unlock_shared(1885435767, pawl_v1._wake_key(p_queue))
    else true
  end;

-- Wakes the sleeping workers of the queues, at COMMIT. Of the transactions that are open at once eight at most notify, by a lock each, because
-- those that do commit one at a time; the jobs of the others are there when the worker has woken, or soon after. With one lock for all, a
-- transaction that stays open would keep every other from waking a worker. Where transactions can be prepared it does nothing: PREPARE TRANSACTION refuses one
-- that has notified.
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

-- Has the keepers beside workers that listen look at the schedules, at COMMIT, if one is due within the second that they poll in at most, or a
-- keeper has to find its next tick. Schedules change seldom, so it does not ask whether a keeper sleeps; but at most eight transactions
-- at once notify, as of _wake.
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

-- Tells the workers that sleep that there are jobs in these queues. What enqueues does so by itself. Call it on its own after your commit, if
-- your transaction was open for long after it enqueued: a worker may have fallen asleep meanwhile. It notifies too where transactions can be
-- prepared.
-- outcome 'told'.
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

-- Says that a worker of these queues, up to 1000, finds nothing and waits: from now on enqueues notify channel pawl_jobs. Call it on the
-- connection of worker_attend, which listens there, once a queue until worker_awake, and then claim once more: what was enqueued just before
-- sent no notification. The server takes it back when the connection ends.
-- A row for each queue: outcome 'asleep', or 'taken': another worker of it sleeps already, and every listener hears what wakes that one.
-- signal: the payload of notifications that mean the queue.
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

-- Takes back what worker_asleep said of these queues. Call it as soon as a notification comes, and when there is work: until then each
-- enqueue notifies.
-- A row for each queue: outcome 'awake', or 'was_awake': this session had not said that it sleeps.
create or replace function pawl_v1.worker_awake(p_queues text[])
returns table (outcome text, queue text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set client_min_messages = 'error' -- a lock that is not held is answered, not warned of
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

-- Enqueueing: one job or many, with or without a key.
--
--                        claim: fence + 1, attempts + 1
--   enqueue ──▶ pending ───────────────────────────────▶ processing ──finish──▶ (row deleted)
--                 ▲                                        │   │
--                 ├──────── fail, attempts left ───────────┘   │
--                 ├──────── release: attempts - 1 ─────────────┤
--                 ├──────── sweep: crashes + 1 ────────────────┤
--                 │                                            ├── fail or sweep, none left ──▶ dead_letter
--                 └──────── job_retry, by an operator ◀────────┴── cancelled by the handler or an operator
--
-- In a lane a job is waiting before it is pending, unless nothing is ahead of it: see 26_lane.sql.

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
  -- One look, and a call for each only to say what is wrong.
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

-- The default fingerprint of a job: kind and payload, each behind its length.
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

-- Enqueues one job, in the caller's transaction if there is one.
--
-- options: key text (the same key, queue and payload enqueue once), hash text (64 hex digits; default: kind and payload),
-- retention_ms (memory of the key, default 24 h), priority 1..4 (default 2), retry_in_ms (start no sooner), max_attempts
-- (default 25), headers object, lane text (1 to 255 octets: jobs of one lane of a queue run in order, one at a time),
-- lane_policy (of a lane that is new: block, park or skip; default block).
-- outcome 'enqueued' or 'duplicate' (job_id is the first one's, which may have finished; commit before you rely on it). P4002: the key came with
-- another payload. If another transaction has enqueued the key and is open, this waits for its end, as long as the caller's lock_timeout allows.
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
  v_owner  bigint; -- of the key, if it came before
  v_stored bytea;
  v_lane   bigint;
begin
  -- What most callers ask for needs the table's defaults only; to look for options that are not there takes as long as the insert.
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
               case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unproved() end;
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
    -- The lane's row is locked until this transaction ends: whoever enqueues into it next has a later position.
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

-- Enqueues up to 10000 jobs in one statement; row i of every array belongs to job i. An absent array or a null element
-- means the default of job_enqueue. Keys are claimed in their sorted order, so that two batches cannot deadlock; two
-- batches in one transaction can, and one of them is then told 40P01. The same holds for lanes.
--
-- options: for all, retention_ms (default 24 h), lane_policy; lanes (array of texts and nulls, one a job).
-- n counts from 1; outcome and job_id as of job_enqueue. A key twice in one batch is a duplicate of its first row.
-- P4002, and nothing enqueued: some key came with another payload.
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
  v_proof  jsonb := '{}';
  v_new    bigint; -- jobs that were enqueued
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
    -- Most batches have one queue, which is quicker to see than to sort out.
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
    v_proof := pawl_v1._unproved();
  end if;
  return query
  select r.n::int, case when r.owner = r.id then 'enqueued' else 'duplicate' end, r.owner, case when r.owner = r.id then '{}' else v_proof end
    from unnest(v_ids, v_owners) with ordinality as r (id, owner, n)
   order by r.n;
end
$$;

-- Insert or observe many keys; row i of the answer is the job that owns key i, or p_ids[i] where there is no key.
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

-- Claiming: many due jobs, or one by its id. The holder is a registered worker, whose heartbeat renews the lease of all it
-- holds, or (p_worker null) whoever knows the fence: then the row has a lease of its own, renewed by job_renew.

-- The due jobs of a queue that were tried before, locked, in the order in which job_claim takes them. They have an index of their own:
-- a queue that drains may hold any number of jobs that are not to be claimed.
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

-- Claims up to p_limit due jobs, most urgent first. Each gets fence + 1 and attempts + 1.
-- A job that was running when a process died is claimed alone, so that a poison job cannot take its neighbours to the
-- dead letters with it: run it with nothing else in the process.
-- Of a queue that is paused it claims nothing, of one that drains what was tried before: see queue_set.
--
-- options: kinds array of text (claim no other; default all), crashed boolean (default true; false leaves jobs that were running
-- when a process died where they are: for a process that has one in hand), lease_ms (of each row if p_worker is null, default 30000),
-- since array of four times, one a priority, null for none: look at no job due before. Where an old snapshot keeps the dead
-- entries of the index alive, a claim that starts behind them stays fast. What a caller passes by so it must look for itself,
-- with a claim without since, often enough: jobs enqueued in transactions that stayed open, rows that were locked.
-- detail: of a job in a lane, lane and position.
-- P4020: the worker's lease is gone; register again.
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
  v_solo   int; -- the place in v_found of the first that has crashed
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
      -- Behind healthy work a crashed job waits for its own turn; it stays first in line for the next claim.
      if v_solo is not null then
        v_found := v_found[1 : v_solo - 1];
      end if;
      v_ids := v_ids || v_found;
      exit when v_solo is not null or cardinality(v_ids) >= p_limit;
    end loop;
  end if;

  -- The rows are locked and were pending when they were. Testing that again would let the planner walk job_claim. An array that
  -- it can see might be long enough to make it read the whole table; of one that it cannot, it expects ten elements.
  return query
  update pawl.job as j
     set status = 'processing',
         fence = j.fence + 1,
         attempts = least(j.attempts + 1, 32767), -- a kind nobody dead-letters must not overflow
         claimed_by = coalesce(p_worker, 0),
         lease_expires_at = v_lease
   where j.id = any (array(select unnest(v_ids)))
  returning j.id, j.fence, j.kind::text, j.payload, j.headers, j.attempts::int, j.max_attempts::int, j.crashes::int,
            j.priority::int, j.created_at, j.available_at,
            case when j.lane_id is null then '{}' else ( -- _lane_of, but a call costs more than the look
              select jsonb_build_object('lane', l.name, 'position', j.position) from pawl.lane as l where l.id = j.lane_id) end;
end
$$;

-- Claims one job by its id, for a message that says "process job 17". It never waits.
--
-- options: early boolean (claim it before it is due), lease_ms as of job_claim.
-- outcome 'claimed' with the job's columns; else they are null and nothing changed: 'not_due' (available_at says when),
-- 'busy' (held by an attempt, or its row is locked), 'ended' (detail.status: cancelled, dead_letter, unknown), 'waiting'
-- (others of its lane are ahead), 'paused' (its queue is, or drains and the job has not been tried before), 'absent' (finished,
-- discarded, or never there).
-- P4020: the worker's lease is gone; register again.
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
             || case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unproved() end;
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

-- Proves the worker's lease and returns null, or the end of a lease of the row's own if there is no worker. The sweep
-- takes the worker row FOR UPDATE before it touches the worker's jobs: no job can be claimed for one being buried.
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

-- Renews the lease of a job claimed without a worker; call it well before it ends. options: lease_ms (default 30000).
-- outcome 'renewed'. P4020: not the holder any more, or a worker is: the worker's heartbeat renews then.
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
     and j.lease_expires_at is not null -- a test of claimed_by would let the planner walk job_held
  returning j.lease_expires_at
       into v_until;
  if not found then
    perform pawl_v1._raise_fence_lost(p_id, p_fence);
  end if;
  return query
  select 'renewed', v_until, '{}'::jsonb;
end
$$;

-- The ends of an attempt: hold, finish, fail, release. All are fenced: who is not the holder any more changes nothing.

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

-- Appends to the bounded error history: the last 10 errors, each cut to 4,000 characters, with the fence and the worker of the attempt if it had
-- them, and with the end of its lease if it ended by that.
create or replace function pawl_v1._push_error(p_errors jsonb, p_error jsonb, p_attempt int, p_fence bigint default null, p_worker bigint default null,
                                               p_lease_ended timestamptz default null)
returns jsonb
language sql
return case when p_error is null then p_errors else pawl_v1._error_pushed(p_errors, p_error, p_attempt, p_fence, p_worker, p_lease_ended) end;

-- Raises P4020 and says in DETAIL what became of the job: absent (finished by a successor, by your own lost COMMIT,
-- or discarded), cancelled, dead_letter, or superseded.
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

-- Locks a job that another transaction has locked, for 2 s at most: then 55P03. A function of its own, because to set a
-- timeout costs more than most calls, which need not wait.
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

-- Locks a claimed job and proves the fence. Call it first in the transaction that will do the work: a stale attempt
-- then stops before it writes, and nobody can take the job over while the transaction is open.
-- outcome 'held'. P4020: see _raise_fence_lost. 55P03: another transaction holds the row; nothing is known yet.
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

-- Ends a job well: the row is deleted, or goes to the archive if its queue has one. In the handler's transaction the work and
-- its end commit together.
-- outcome 'finished'; if it was in a lane, detail is that of _lanes_free. P4020 aborts the transaction, so a stale holder
-- loses its writes together with its claim.
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

-- Waits, in the order of their ids, for jobs that another transaction has locked: p_ms for one, and for all; then it gives up.
-- Who locks a job as a rule is a claimer: its snapshot shows the row pending, another has claimed it since, and PostgreSQL locks the
-- newest version of a row before it tests it again. The claimer does not take it, and holds the lock until its own commit.
create or replace function pawl_v1._jobs_wait(p_ids bigint[], p_ms int)
returns void
language plpgsql
set lock_timeout = '2s' -- so that the end of the function restores it
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

-- Those of some jobs whose rows are there and are locked by another transaction, after this one has locked p_locked of them.
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

-- Locks many claimed jobs, in the order of their ids, and says which are still held. Nothing is raised: do the work of the
-- held ones only, and finish exactly those. It waits for rows that others have locked, for 2 s: 'locked' means that another
-- transaction has kept the row for longer.
-- outcome per job: 'held', 'stale' (not this attempt's any more), 'locked'.
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

-- Of a job whose row this transaction could not lock: whether it is there.
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

-- Ends many jobs well, in the order of their ids. If one of them is not held any more, P4020 aborts the transaction: call
-- it in the transaction that did the work. It waits as job_hold_many does. 55P03: another transaction has the row of one of them;
-- nothing is known yet.
--
-- options: skip_stale boolean: for work that is done and committed elsewhere; nothing is raised, the others are finished, and it
-- waits for 250 ms.
-- outcome per job: 'finished', 'stale', 'locked' (another transaction has the row; ask again). If some were in lanes, the
-- detail of the first row is that of _lanes_free for all of them.
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
  v_before   record;   -- what the first try has locked and ended, if there is a second
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
       where j.id = any (array( -- not a join: the planner may prefer to read the whole table for it
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
    exit when cardinality(v_gone) = cardinality(p_ids); -- as a rule
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

-- Ends an attempt badly. The job waits retry_in_ms and becomes pending again, or goes to the dead letters if its
-- attempts are spent or final is true, or is cancelled if cancel is true; it keeps its payload and its last errors. If unknown
-- is true, and a step of it is unknown, it waits for a verdict (step_settle), in a lane with its turn.
--
-- p_error: {"error": text, "code": SQLSTATE}. options: retry_in_ms (default 1000), final boolean, cancel boolean, unknown boolean.
-- outcome 'retry', 'dead_letter', 'cancelled' or 'unknown'. A job in a lane keeps its turn while it is tried again; when it has
-- ended, detail is that of _lanes_leave. P4020: not the holder.
create or replace function pawl_v1.job_fail(p_id bigint, p_fence bigint, p_error jsonb, p_options jsonb default '{}')
returns table (outcome text, available_at timestamptz, attempts int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_job     pawl.job;
  v_unknown boolean := false;
begin
  perform pawl_v1._check_options(p_options, '{retry_in_ms,final,cancel,unknown}');
  if (p_options ->> 'unknown')::boolean then
    -- Somebody may be settling it just now. The job's row first, as whoever settles locks them.
    perform from pawl.job as j where j.id = p_id for update;
    perform from pawl.step as e where e.job_id = p_id and e.status = 'unknown' for update;
    v_unknown := found;
  end if;
  update pawl.job as j
     set status = case
           when v_unknown then 'unknown'
           when coalesce((p_options ->> 'cancel')::boolean, false) then 'cancelled'
           when coalesce((p_options ->> 'final')::boolean, false) or j.attempts >= j.max_attempts then 'dead_letter'
           else 'pending'
         end,
         lane_head = j.lane_head and (v_unknown or not coalesce((p_options ->> 'cancel')::boolean, false)),
         claimed_by = null,
         lease_expires_at = null,
         available_at = clock_timestamp()
           + pawl_v1._int_option(p_options, 'retry_in_ms', 1000, 0, 31536000000) * interval '1 millisecond',
         last_errors = pawl_v1._push_error(j.last_errors, p_error, j.attempts, j.fence, j.claimed_by)
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

-- Gives a claimed job back without charging the attempt: on shutdown, when the database was away, to be asked again later
-- (retry_in_ms), or when the reply to COMMIT was lost. In the last case it is the question and the answer in one: whatever
-- the old transaction did, after this call the job is either pending again or was not ours to give back.
--
-- options: retry_in_ms (default 0).
-- outcome 'released'; or 'not_held', nothing changed (finished, taken over, or ended otherwise).
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
  select 'not_held', case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unproved() end;
end
$$;

-- A job that ends in the transaction that does its work, its end first:
--
--   begin → job_open: the row is deleted → your rows → job_close: still that transaction? → commit
--                                             └── any error: rollback brings the row back; job_fail, in a transaction of its own
--
-- An effect cannot commit without the end of its job, whatever the code in between does to the transaction.

-- Proves the fence and ends the job, as the first statement of the transaction that will do the work. Others see the job
-- processing until the commit, and its row is locked; a rollback brings it back, held by this attempt. Call job_close last.
--
-- p_idle_ms: the server ends the transaction after so long a silence (idle_in_transaction_session_timeout); null leaves the
-- session's own limit. p_keep: the row stays, locked, until job_close, for work that reads it; so does that of a queue with an archive.
-- outcome 'ended', or 'kept'. Pass it, xact and lane to job_close as they are; xact says whether the row was kept.
-- P4020: see _raise_fence_lost. 55P03: another transaction has held the row for 2 s; nothing is known yet.
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
    perform pawl_v1.job_hold(p_id, p_fence); -- the row is locked now, by this transaction
    exit when p_keep;
  end loop;
  outcome := 'kept';
  xact := pg_current_xact_id()::text || ' kept';
  return next;
end
$$;

-- The counterpart of job_open, as the last statement before COMMIT. It proves that this is still the transaction that job_open
-- began, and gives the turn in the job's lane to the next. p_outcome, p_xact, p_lane: what job_open answered.
--
-- outcome 'finished', detail as of job_finish.
-- 25000: the work has ended the transaction, by COMMIT or ROLLBACK, and this is another one. What it wrote before may be durable;
-- job_release says whether the job ended with it. Or the work rolled back to a savepoint from before job_open.
-- P4020: the work has ended the job by itself (outcome 'kept' only). P4004: p_outcome is
-- not what job_open answered, so the effect might commit without the end of the job.
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
--   enqueue ──▶ waiting ── promoted ──▶ pending ⇄ processing ──▶ finished: the next is promoted
--      │                                   ▲          └──▶ dead_letter: policy block: it keeps its turn, the lane stands
--      └── nothing ahead of it ────────────┘                            policy park, skip: parked, the next is promoted
--
-- Three rules, checked by docs/internals/model:
--   1. The row that had the turn goes first (deleted, or lane_head = false); only then the lane's row is asked for, and without
--      waiting: a transaction that has enqueued into the lane and stays open must not hold up who finishes a job.
--   2. Whoever puts a job into a lane, or promotes one, has updated the lane's row before it looks. Never a lock alone: with
--      an old snapshot (REPEATABLE READ) it must be told 40001, or it waits behind a job that is gone.
--   3. A lane that had to be skipped is named in the answer. Whoever got it calls lane_promote after the commit; if they die
--      first, lane_sweep finds the lane.

-- Whether anything of a lane is ahead of a newcomer. The caller has updated the lane's row, in an earlier statement.
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

-- What a claim says of a job's lane.
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

-- Locks the lanes of a call, in the order of their names, updates their rows and returns their ids; null where there is no
-- name. Waits for whoever has one of them open.
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

-- Promotes what waits first in each of some lanes that have no head. The caller has updated the lanes' rows, in an earlier
-- statement. A job whose row is locked, by an operator or a claim by id, is not waited for; nobody is promoted in its place.
-- stuck: lanes in which somebody waits and nobody was promoted.
create or replace function pawl_v1._lanes_advance(p_lanes bigint[], out promoted int, out stuck bigint[])
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_next  bigint[]; -- who waits first in each
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

-- After the turn of these lanes' heads has ended, in this transaction: promotes their successors. It never waits.
-- detail: promoted (how many may be claimed now), skipped (the ids of lanes that others have locked; call lane_promote for
-- each after your commit).
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

-- After the job that had the turn of a lane was taken out of it, by a call that no worker makes, in this transaction: as _lanes_free, and wakes a
-- worker for the next. A worker that ends a turn claims the next job itself, so nothing else of lanes does.
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

-- After these jobs have become dead letters or were cancelled, in this transaction: dead letters give up their turn unless
-- their lane's policy is block, and the lanes go on. detail as of _lanes_free.
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

-- Promotes what waits first in a lane, if nothing has its turn: call it, in a transaction of its own, for a lane that
-- another call's detail named as skipped. Safe at any time.
-- outcome 'promoted', 'idle' (somebody has the turn, or nobody waits), 'absent' (no such lane).
-- 55P03: the lane is locked for longer than 250 ms; lane_sweep will find it.
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

-- Promotes in every lane in which somebody waits and nobody has the turn: the backstop for those who died before they could
-- call lane_promote. Call it about once a second. It looks at up to p_limit lanes in which somebody waits, and never waits.
--
-- options: after (a lane's id: look at those above it only).
-- outcome 'swept'. promoted: how many may be claimed now. detail.next: pass it as after to look at the rest; absent after the last.
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
    -- One entry of job_wait a lane, however many wait in it.
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

-- Deletes lanes that hold no job at all. Their order is not lost, since positions belong to all lanes; their policy is, unless
-- it was set by lane_policy: such lanes stay. It looks at up to p_limit lanes, and never waits.
--
-- options: after (a lane's id: look at those above it only).
-- outcome 'purged'. purged: how many. detail.next: pass it as after to look at the rest; absent after the last.
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
  -- Locked, they are looked at again: a job may have come in between.
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

-- An exchange: jobs that are done end, and others are claimed in their place, in one call and with one commit.

-- Ends many jobs well, as job_finish_many with skip_stale, and claims due jobs of a queue, as job_claim for a worker: up to p_limit, and one
-- more for each job that ended, at most 500. A job in a lane whose predecessor has just ended may be among them. For handlers that work without
-- a transaction: start none before the answer has come.
--
-- If the worker's lease is over, or ends within 100 ms, nothing is claimed. That is a row and not an error, for the ends are good.
--
-- options: those of job_claim but lease_ms.
-- outcome 'ended', always and once: detail has finished, how many, and is else that of job_finish_many. Then one row each for
-- 'stale' and 'locked': a job that did not end, as of job_finish_many, with its id; 'lease_lost': register again; 'claimed', with the columns
-- and the detail of job_claim.
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
  -- The worker before its jobs, as everybody locks them.
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

-- Batches: a holder of heads works on those that wait behind them as well, in order, where the work takes ordered batches.
-- Those stay 'waiting': only the head has the turn, and its fence guards all of them.

-- What waits behind some heads that the caller holds, in the order in which it would be promoted: up to p_limit jobs a lane. Work on each batch in
-- its order, the head first, then call lane_finish for the prefix that is done. A batch ends before the first job that is not due, was tried before or is of another kind.
-- A head that was tried before, or was in hand when its process died, has no batch, nor have those that waited in its batch then, nor those
-- of a queue that is paused or drains. It never waits.
--
-- One row a job; none for a head without a batch. head: the job whose fence guards it. detail: lane and position.
create or replace function pawl_v1.lane_batch(p_ids bigint[], p_fences bigint[], p_limit int default 100, p_options jsonb default '{}')
returns table (
  head bigint, id bigint, kind text, payload bytea, headers jsonb, max_attempts int, created_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_heads bigint[];
  v_lanes bigint[]; -- of v_heads, as are the next two
  v_names text[];
  v_kinds text[];
begin
  perform pawl_v1._check_options(p_options, '{}'),
          pawl_v1._check_batch('ids', coalesce(cardinality(p_ids), 0), 500, coalesce(cardinality(p_fences), 0)),
          pawl_v1._check_int('limit', p_limit, 1, 1000);
  -- A test of lane_head in WHERE would let the planner read the index of all heads. Without IS TRUE, the test of the fences is a join that
  -- compares each head with each id; with it, it is a hash lookup.
  select array_agg(h.id) filter (where h.lane_head), array_agg(h.lane_id) filter (where h.lane_head),
         array_agg(h.lane) filter (where h.lane_head), array_agg(h.kind) filter (where h.lane_head)
    into v_heads, v_lanes, v_names, v_kinds
    from (
      select j.id, j.lane_id, j.kind, j.lane_head, (select l.name from pawl.lane as l where l.id = j.lane_id) as lane -- joined, it would lead
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
  ), noted as ( -- Written, so that the caller's COMMIT waits for the synchronous standbys, and with it whatever was read here.
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

-- Ends heads well, and of their batches those in p_members: as job_finish_many with skip_stale, in one transaction. Pass a prefix of each batch.
-- Members of a head that is not held any more are not ended. Of each lane it ends members up to the first that another transaction has locked,
-- and passes by those that an operator has ended. When a head that crashed in a batch has ended, those that waited in that batch are to go alone.
--
-- outcome per head as of job_finish_many. members: how many of its batch were ended.
create or replace function pawl_v1.lane_finish(p_ids bigint[], p_fences bigint[], p_members bigint[], p_options jsonb default '{}')
returns table (id bigint, outcome text, members int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_locked  bigint[]; -- of p_ids: the rows that exist and that no other transaction has locked
  v_held    bigint[]; -- of v_locked: the jobs that the caller still holds
  v_fences  bigint[]; -- of v_held
  v_lanes   bigint[]; -- of v_held
  v_turns   bigint[]; -- those of v_lanes whose turn one of v_held has
  v_alone   bigint[]; -- of v_lanes: the lanes in which a process died in a batch
  v_ends    bigint[]; -- of v_alone: the last position of that batch
  v_members bigint[];
  v_behind  bigint[]; -- the lanes of v_members
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

-- Locks those of some jobs that wait in these lanes, and returns them with their lanes: in each lane, up to the first that another transaction
-- has locked. If it has locked them all, as a rule, it does not look for that one.
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

-- Deletes heads and members of their batches. Those of a queue with an archive are archived, a member with one attempt. The caller has locked them.
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

-- Marks the next job of each lane to go alone, up to the last position of the batch in which a process died. Call it when their heads have ended.
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

-- The archive: what finished in the last seven days, for the queues that ask for it (queue_set). Eight plain tables, used in turn
-- by the day and emptied by TRUNCATE: no DDL, no partitions, nothing a finish could fail or wait for.

-- The number of a day, in UTC, since 1970.
create or replace function pawl_v1._day(p_at timestamptz)
returns bigint
language sql
stable
return floor(extract(epoch from p_at) / 86400)::bigint;

-- Deletes jobs and returns them with the columns of an archive table. The columns are listed on
-- purpose: `returns setof pawl.archive_0` would lock that table once a session, and a finish would
-- then wait for the sweep that empties it.
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

-- Moves jobs that have finished into the table of the day. The caller has locked them and proved their fences. Each table has
-- a statement of its own, so that a finish locks the table of the day and no other.
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

-- Of some locked jobs, archives those that are still held, and adds them to what job_finish_many has ended already.
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

-- Whether a table of the archive has rows, and none from p_edge on. It hops from queue to queue along an index, so it reads no
-- table however large.
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

-- Empties the tables of the archive whose rows are all older than the ring: today and the six days before it stay, by UTC. Call
-- it about once a minute, in a transaction of its own. It waits for a lock for 50 ms at most, and so does who comes behind it.
-- The rows decide, not the calendar: a clock that was set back, or a day without a sweep, costs no row that is young.
--
-- outcome 'swept'; 'busy': some table could not be locked, ask again. emptied: how many tables. detail.busy: their numbers.
-- P4004: the transaction is at REPEATABLE READ or above, where rows that are too new to be seen would go.
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
    continue when v_slot = v_today % 8; -- finishes write to it: who locked it would stop them until this transaction ends
    begin
      if pawl_v1._archive_is_old(v_slot, v_edge) then
        execute format('lock table pawl.archive_%s in access exclusive mode', v_slot);
        -- Locked, it is looked at again: a finish may have come in between.
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

-- Workers: one row per process incarnation, which carries the lease of everything the process has claimed.

-- Registers one process incarnation. p_lease: how long it may stay silent before its jobs are taken back; 1 s to 12 h.
-- options: queues, an array of up to 1000 names: what it works on. Its death is then known as one of these queues: see queue_death.
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

-- Takes the worker's presence lock on this session, which must be a direct connection kept for nothing else: a pooler in
-- transaction mode would leave the lock with a stranger's connection. The server frees it when the process dies.
-- From now on a free lock is evidence. Should the session end, tell the next heartbeat.
-- outcome 'present', or 'taken': another session has it (a sweep looking, or the old connection, not yet noticed as dead).
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

-- The number of a worker's presence lock. Two workers may share one in 2^31: then one's presence hides the other's death
-- until its lease is over, no more.
create or replace function pawl_v1._presence(p_worker bigint)
returns int
language sql
immutable
return (p_worker & 2147483647)::int;

-- Renews the lease of everything the worker holds. Losing this write in a crash of the server costs a takeover that the
-- fence makes harmless, so synchronous_commit may be off for it.
--
-- options: presence boolean (the process holds its presence lock), report object (what pawl doctor is to know: queues, an array of
-- names; drain_ms; watched; wakeups: on, off or none; woken, polled; handlers, an object of objects by kind, with timeout_ms, runs and p99_ms);
-- default of both: as it was. told array (detail.recalls of the last answer that arrived, or []: those are forgotten, and what this answer
-- names is named again until a later beat says that it arrived; default: it is forgotten at once, and lost with the answer).
-- outcome 'alive', or 'lost': its jobs were taken back; stop their handlers and register again.
-- recalled: jobs that were cancelled or recalled under it since the last beat; end their handlers. Each is named once, with told until it
-- has arrived, and not at all if the worker has claimed it again meanwhile.
-- detail.hidden, true: row level security is on for this role and may hide jobs or lanes, so they wait.
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

-- Ends a worker in good order: what it still holds goes back at once, uncharged, and wakes other workers. A job whose transaction is still open
-- stays with the worker row until the sweep.
create or replace function pawl_v1.worker_leave(p_worker bigint)
returns table (outcome text, released int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_released int;
  v_queues   text[];
begin
  -- A claim of this worker may be under way, whose answer nobody waits for any more. It has the row until it commits; what it
  -- claimed is seen below, because each statement has a snapshot of its own, and none can follow.
  perform from pawl.worker as w where w.id = p_worker for update;
  with held as (
    select j.id
      from pawl.job as j
     where j.claimed_by = p_worker
       and p_worker <> 0 -- the jobs claimed without a worker are not one worker's to leave
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
    -- One snapshot for all statements, older than what was waited for: what that claimed cannot be seen. The next sweep sees it.
    update pawl.worker as w
       set seen_at = '-infinity'
     where w.id = p_worker
       and not exists (select from pawl.job as j where j.claimed_by = w.id);
  end if;
  return query
  select case when found then 'left' else 'busy' end, v_released, '{}'::jsonb;
end
$$;

-- Says whether the worker's process has nothing in hand but one attempt of a job, which p_fence names. The sweep believes the last
-- answer: a death is then counted in crashes_alone too. Call it, in a transaction of its own, before such an attempt begins, and
-- with p_alone false before anything else begins beside it. The end of the attempt ends the mark. To take a mark away names its
-- attempt: a call that arrives late leaves the mark of the next one.
-- outcome 'alone'; 'company' with p_alone false; 'lost': the worker has no row, or it does not hold that attempt.
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

-- Takes back the jobs of the dead: crashes + 1, and pending again after a jittered pause, or to the dead letters when
-- attempts or crashes are spent. Crashes are spent after max_crashes deaths at which the job was alone in its process, or after
-- three times as many at which it was not: see worker_isolate. A job without a worker counts as alone from its second death on,
-- for from its first it must run alone. Dead is
--   a worker whose lease is over,
--   a worker that has been silent for 1.5 s and whose presence lock was found free twice, 300 ms apart, by sessions that
--     are at least 5 s old (after a restart of the server every lock is free and everybody was silent),
--   a job claimed without a worker whose own lease is over.
-- On evidence of presence the attempt is given back: the crash alone is counted.
-- The presence session of a worker whose lease is over is ended if it is announced as asleep: see _presence_end.
-- Only kinds in p_kinds are dead-lettered: a sweeper does not decide on work it does not know.
-- The advisory lock saves work, nothing else: two sweeps at once are safe.
--
-- The death of a worker is noted for each of its queues: see queue_death.
--
-- options: max_crashes (default 4), limit (jobs a call, default 1000).
-- outcome 'swept' or 'busy' (another sweep is running). If dead letters were in lanes, detail is that of _lanes_leave.
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

  insert into pawl.death as d (queue, died_at)
  select q.name, clock_timestamp()
    from pawl.worker as w
    cross join jsonb_array_elements_text(w.queues) as q (name)
   where w.id = any (v_gone)
     and isfinite(w.seen_at) -- it has left, and its row had to stay
   group by q.name -- not distinct: the time is another in each row
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
                   or j.attempts >= j.max_attempts and j.claimed_by <> all (v_absent))
                  and j.kind = any (p_kinds) then 'dead_letter'
             else 'pending'
           end,
           attempts = case when j.claimed_by = any (v_absent) then greatest(j.attempts - 1, 0) else j.attempts end,
           claimed_by = null,
           lease_expires_at = null,
           crashes = least(j.crashes + 1, 1000), -- a kind nobody dead-letters must not overflow
           crashes_alone = least(j.crashes_alone + due.alone::int, 1000),
           available_at = clock_timestamp() + random() * power(2, least(j.crashes, 6)) * interval '100 milliseconds',
           last_errors = pawl_v1._push_error(j.last_errors,
             jsonb_build_object('code', 'crash', 'error', 'the worker died or froze past its lease'), j.attempts, j.fence, j.claimed_by,
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

-- Ends the presence sessions of workers whose lease is over and that are announced as asleep, as far as the caller may: a process that is frozen, or
-- whose host has vanished, would stay announced for as long as the server keeps its connection, and each enqueue into its queues would notify.
-- It ends no other session: one that has the worker's presence lock, the exclusive lock of a sleeping queue, both as locks of a session that is in no
-- transaction, is a presence connection. It is looked up in the statement that ends it, so that its process id is not another's by then. A session
-- that the caller's role cannot look into is left alone; its own sweep may end it. If two workers share a number, the other connects again.
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
          and a.state in ('idle', 'disabled') -- the latter: the server does not track what sessions do
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
      when insufficient_privilege then null; -- another role's
    end;
  end loop;
end
$$;

-- The workers that are dead by the evidence of their presence locks, each locked FOR UPDATE. What the first look saw is
-- kept in suspected_at, for whoever looks next; a heartbeat clears it.
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
    -- A session gets a lock that it has a second time, so its own is no evidence.
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

-- When a process that worked on a queue last died, as far as is known: for a consumer that must decide whether a delivery that
-- comes again and again may have killed the process that had it.
-- outcome 'died' at died_at, by the clock of the database; 'silent': a worker of the queue has not been heard of for 3 s, and no sweep has
-- judged it yet, so died_at is now; 'none': no death is known.
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

-- Forgets enqueue keys whose memory is over, at most p_limit of them (1 to 10000). A key whose job has a row is never forgotten: a
-- second job would run beside the first, which may be a dead letter that somebody retries. Such a key is remembered for as long again
-- as it has been, and not looked at until then.
--
-- options: older_than_ms (default 24 h): looks at no key taken since. The walk through the index of ages ends there; raise it to the
-- shortest retention_ms in use. since: detail.next of the call before, to go on from there; the first call of a round has none.
-- outcome 'purged'. detail.kept: keys whose jobs have not ended, with a new end of their memory; absent if none. detail.next: the
-- moment up to which it has looked; absent if it found nothing.
create or replace function pawl_v1.job_key_purge(p_limit int default 1000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- it walks the index of ages in order: see docs/decisions/0036-purging.md
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
  -- Their places in the table, which cannot change while they are locked: a join by key could read all of it for each batch.
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

-- What processes have counted, by the minute and by the hour, for charts. These are statistics, not records: what a process counted since its last
-- call is lost if it dies.

-- Adds to the current minute and the current hour, by the server's clock. p_source says what p_scopes name: 'queue' or 'consumer'. The scope
-- '' stands for none of them. p_names has 1 to 40 of a-z and _ each, p_values 0 to 10^12. The arrays go by place and have up to 1000 elements.
--
-- Minutes are kept for 24 hours and hours for 7 days: a call deletes up to 500 rows of each that are older. Once an hour has 500 rows, what
-- would need another one is added under the scope ''.
--
-- options: levels boolean (default false). Counts are added up; of levels the highest is kept.
-- outcome 'added'. sample: no level of a queue was added in this minute so far, so if you can measure them, do it now.
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
   order by s.span, g.scope collate "C", g.name collate "C" -- as every other call, so that two cannot wait for each other
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

-- Deletes up to 500 rows of one span that are older. It passes by what is locked.
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

-- Which attempts came back too late and were refused. A refusal rolls its transaction back, so the process that was refused records it afterwards.

-- Records refusals for explain. p_kind says what they are of: 'job' (then a scope is a queue and a key an id) or 'command'. p_fences are those of the
-- refused attempts, p_workers name their processes. The arrays go by place and have up to 1000 elements. A refusal that is known is not recorded again.
--
-- They are kept for 7 days: a call deletes up to 500 older ones. Once the last hour has 1000, no more are recorded.
--
-- outcome 'recorded', or 'full' if some found no room. detail.recorded: how many are new.
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
   order by g.key collate "C", g.scope collate "C", g.fence -- as every other call, so that two cannot wait for each other
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

-- The operator's verbs: the only way to change a job by hand that leaves a record.
--
-- Each locks the row, decides by its status, changes it in one statement and writes pawl.audit in the same transaction: a
-- change without its record, or a record without its change, cannot be committed. fence + 1 makes the operator a generation
-- of its own, so an attempt that still believes to hold the job is told P4020 at its next word.

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

-- A verdict names what it is about. Without the fence a verdict on one call would settle the next.
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

-- The row of a job, locked; null if there is none. One that waits is processing here while it is in the batch of its head.
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

-- Checks what every verb is told, and returns the row locked; null if there is none.
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

-- The answer of a verb that changes nothing; no row if it may go ahead. detail.hint is the next step.
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
      when 'unknown' then 'nobody knows whether a call of it was executed: its step needs a verdict, see step_settle'
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

-- A misspelt status in the option from would refuse every job.
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

-- A job as the audit keeps it: not the payload, but what proves which payload it was.
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

-- Makes a job due now, with all its attempts before it: a dead letter or a cancelled job, or a pending one that waits for its
-- next try. The errors so far stay in its history. Its inbox row and its key are untouched, so it is the same intent.
--
-- options: from (array of statuses: refuse a job in any other); fence bigint (refuse a job that has been tried or changed since it had
-- this fence, as pawl_v1.jobs shows it: whoever decides by what an attempt did or did not do passes it).
-- outcome 'retried' (detail.status: what it was), 'refused' (detail.status, detail.hint), 'absent'.
-- In a lane: a dead letter that blocks it has kept its turn. One that gave it up, or was cancelled, comes back at its old
-- position, so it is next (detail.lane 'pending' or 'waiting'); under the policy skip it has left the lane (detail.lane
-- 'left').
-- P4004: actor or reason. 55P03: an open transaction holds the row for more than 2 s; nothing changed.
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

-- Brings a job that gave up its turn back into its lane, at its old position, or out of it under the policy skip. Its row is
-- locked by this transaction; whoever holds a lane's row waits for no job but one that has its turn.
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

-- Ends a job whose row is locked, and has the worker told that may be running it.
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

-- Ends a job that has not ended, and keeps it: it can be retried or discarded. A running attempt is fenced out, and its
-- worker learns of it with the next heartbeat, so that the handler can be ended too.
--
-- options: from, fence, as of job_retry.
-- outcome 'cancelled' (detail.status: what it was), 'refused', 'absent'. The next job of its lane may start at once, while
-- the handler of a running one is still being told; detail as of _lanes_free. Errors as of job_retry; an
-- attempt with an open transaction holds the row until it commits or rolls back: see job_recall.
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

-- Asks the worker that runs a job to end its handler, at its next heartbeat; the attempt then rolls back and gives the job
-- back, uncharged. It is how a cancel gets at a job whose attempt has locked the row: recall in a transaction of its own,
-- then cancel, which waits for the lock and has it before the attempt can give the job back.
-- outcome 'recalled', or 'not_held': no worker runs it. It changes nothing that lasts, so it leaves no record.
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

-- Deletes a job that nobody works on, payload and errors with it; the audit keeps the rest. Its inbox row and its key stay: a
-- redelivery, or the same key, is still a duplicate.
--
-- options: from, fence, as of job_retry.
-- outcome 'discarded' (detail.status: what it was), 'refused', 'absent'. If it had the turn of its lane, detail as of
-- _lanes_free. Errors as of job_retry.
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

-- Ends the turn of a dead letter that blocks its lane, and lets the lane go on. The dead letter stays, to be retried (see
-- job_retry) or discarded.
--
-- options: job (its id: refuse if another one blocks the lane by now).
-- outcome 'unblocked' (detail.job, and detail as of _lanes_free), 'refused' (detail.job, detail.status, detail.hint), 'idle'
-- (nobody has the turn), 'absent' (no such lane). P4004, 55P03: as of job_retry.
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
      when v_before.status = 'unknown' then 'nobody knows whether a call of it was executed: its step needs a verdict, see step_settle'
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

-- Sets what a lane does when its head becomes a dead letter: 'block', 'park' or 'skip'. A dead letter that blocks it already
-- stays where it is: see lane_unblock. The lane is not purged any more.
-- outcome 'changed' (detail.policy: what it was), 'absent' (no such lane). P4004, 55P03: as of job_retry.
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

-- Sets what holds for all jobs of a queue: for claims and finishes that begin after the commit, in any process.
--
-- options: archive boolean: finished jobs go to the archive, payload and all, for seven days. mode text: 'running' (the default),
-- 'draining': nothing is claimed but what has been tried before and is to be tried again (attempts or crashes are above 0), so that
-- what was begun comes to its end; 'paused': nothing is claimed. In every mode attempts that are running go on, and jobs can be enqueued.
-- One that is absent stays as it is.
-- outcome 'changed' (detail: what archive and mode were), 'unchanged' (nothing is written, and no record). P4000: the queue's name.
-- P4004, 55P03: as of job_retry.
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
   where (p_options ->> 'archive')::boolean -- else the defaults hold, and need no row
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

-- What an application may do with a job that it enqueued: cancel it, or let it run at another time. Both belong into the transaction
-- that makes the job needless, as that of the order which is paid before its reminder. No operator decides, so there is no actor, no
-- reason and no record in pawl.audit; job_cancel and job_retry are for people.

-- Ends a job that has not ended. A job that waits will not run. One that runs is refused its end: its attempt is told when its worker
-- next reports, and what it has done outside of the database stays done.
--
-- outcome 'cancelled' (detail.status: what it was; 'processing': an attempt was running, or it is in the batch of its head, see lane_batch),
-- 'refused' (detail.status, detail.hint: it has ended, or waits for a verdict), 'absent': it has finished, was discarded, or was never
-- there. Its key stays remembered.
-- In a lane the next gets its turn: detail as of job_finish.
-- 55P03: an open transaction has held the row for more than 2 s, most likely that of its handler; nothing changed.
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
  select r.outcome, r.detail || case when current_setting('synchronous_standby_names') <> '' then pawl_v1._unproved() else '{}' end
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

-- Lets a job that waits run at another time, earlier or later. Its attempts, its key and its place in its lane stay; a lane waits for the
-- job whose turn it is.
--
-- p_start_in_ms: how long from now, 0 to 315360000000 (10 years), by the clock of the database.
-- outcome 'rescheduled' (detail.status, detail.queue, detail.available_at), 'refused' (detail.status, detail.hint: it is running, or has
-- ended), 'absent': as of job_cancel_own. P4004: p_start_in_ms. 55P03: as of job_cancel_own.
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
  select r.outcome, r.detail || case when current_setting('synchronous_standby_names') <> '' then pawl_v1._unproved() else '{}' end
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

-- Another attempt of a delivery, by hand. It goes through the inbox like every other: what took effect does not run again.

-- What is known of a delivery, in one look.
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

-- Makes a new job of a delivery as it was kept, and its owner in the inbox. Null: somebody was faster.
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

-- Has a delivery tried again that has not taken effect: its job, with all its attempts before it and as a generation of its own; or, if the
-- job was discarded or the delivery forgotten by hand, a new job made of what was kept of it. What took effect is not touched, and what comes
-- from its sender meanwhile is a duplicate. It leaves a record in pawl.audit.
--
-- options: dry_run boolean (say what would be done, and do nothing).
-- outcome 'replayed': job_id, with detail.status, what the job was (absent: it is new). With dry_run 'would_replay'.
-- 'refused': nothing was changed; detail.hint is the next step, with processed_at if it took effect, and job and status if its job stands
-- in the way. 'absent': neither remembered nor kept. 55P03: an open transaction has the job or the delivery for more than 2 s.
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
        'nobody forgot it by hand: it is older than what is remembered, and whether it took effect is not known'
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
        -- The job, and then nothing of the inbox: an attempt locks them in this order. While the job is there it owns the delivery.
        select r.* into v_retry from pawl_v1.job_retry(v_job, p_actor, p_reason,
          case when v_dry then '{"from": []}'::jsonb else '{}' end) as r;
        continue when v_retry.outcome = 'absent'; -- it has ended since
        if v_retry.outcome <> 'retried' then
          return query
          select 'refused', v_job, v_retry.detail || jsonb_build_object('job', v_job);
          return;
        end if;
        v_was := jsonb_build_object('status', v_retry.detail -> 'status');
      end if;
    elsif v_dry then
      v_job := null; -- that of before is gone
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

-- Schedules: jobs that are enqueued at their time. Keepers do it, any number of them at once, each with
--
--   look    pawl_v1.schedules: what is due, and its fence
--   tick    schedule_tick: the fence proves that nobody was faster; the ticks' jobs and the next tick are one transaction
--
-- A tick is a moment, not an event: after an outage it is still owed. Intervals are counted here, in absolute time. Cron expressions
-- are read by the keeper, because only a parser knows them; what it finds is checked here for what would double or lose a tick.

-- Enqueues the job of one tick. Its key is the schedule and the moment, so even a tick that comes twice has one job; the hash is that
-- of the key, because a schedule may have been given another payload since.
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

-- A schedule as the audit keeps it: not the payload, but what proves which payload it was.
create or replace function pawl_v1._schedule_record(p_schedule pawl.schedule)
returns jsonb
language sql
stable
return to_jsonb(p_schedule) - 'payload'
  || jsonb_build_object('payload_octets', octet_length(p_schedule.payload), 'payload_sha256', encode(sha256(p_schedule.payload), 'hex'));

-- The first tick of an interval's grid after a moment.
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

-- Makes a schedule, or gives the one of this name another plan, job or policy. A program calls it each time it starts: as long as the
-- plan (cron, time_zone, every_ms) is the same, the next tick stays what it is, however often that is. A tick that is due already is
-- still made, and an interval is counted from it. Otherwise another plan begins after now, so that no tick is made twice. A schedule
-- that is paused stays paused.
--
-- options: cron text (a keeper reads it) with time_zone text (default UTC), or every_ms (100 to 31536000000); first_at text, a moment
-- (the first tick; default after one interval, or for cron what a keeper finds. If it has passed, a schedule that is made is due at
-- once, and another plan begins with the next tick of its grid); missed text: of the ticks missed in an outage enqueue the 'last'
-- (default) or 'all' (the newest 1000). For each job, as of job_enqueue: priority, max_attempts, headers, lane, lane_policy.
-- outcome 'created', 'changed', 'unchanged'. next_at: null until a keeper has read the cron expression. P4000, P4004.
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

  -- What is due is owed, whatever the plan is from now on.
  if (v_before.cron, v_before.time_zone, v_before.every_ms) is distinct from (v_new.cron, v_new.time_zone, v_new.every_ms)
     and (v_before.paused or coalesce(v_before.next_at > v_now, true)) then
    v_new.since_at := greatest(v_now, v_before.since_at); -- clocks differ after a failover
    if v_new.next_at <= v_new.since_at then -- ticks of the old plan may have been made since: only their keys, which are purged, know
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

-- Enqueues what a schedule owes and says when it ticks next, in one transaction: a keeper that dies has done both or nothing, and of
-- two keepers the slower one is told that its fence is old. For an interval nothing is passed. For a cron expression the keeper says
-- which ticks are due (ascending; none if it only says the next one) and which is next, in the schedule's order.
--
-- outcome 'ticked' (enqueued: jobs; next_at; detail.skipped: how many missed ticks of an interval were left out), 'superseded'
-- (somebody changed the schedule since the fence was read: look again), 'not_due', 'absent'.
-- P4004: ticks that are out of order, before the one that is due, or in the future. 55P03: an open transaction has the schedule for more
-- than 0.5 s.
create or replace function pawl_v1.schedule_tick(
  p_name    text,
  p_fence   bigint,
  p_ticks   timestamptz[] default null,
  p_next_at timestamptz default null
)
returns table (outcome text, enqueued int, next_at timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms' -- the others that are due wait meanwhile
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

-- What a keeper may say of a cron schedule: nothing that would double a tick, or lose the one that is due in silence.
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

-- Checks what the operator's verbs are told, and returns the row locked; null if there is none.
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

-- Stops a schedule: nothing is enqueued until it is resumed, also what is due already. Jobs that it has enqueued stay.
-- outcome 'paused', 'unchanged' (it was; no record), 'absent'. P4004: actor or reason. 55P03: an open transaction has it for more than
-- 2 s; nothing changed.
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

-- Lets a schedule go on. Ticks whose time has come meanwhile are dropped, whatever it does with missed ones: an interval keeps its
-- grid, and of a cron expression a keeper looks for the next tick from now on. See schedule_run_now.
-- outcome 'resumed' (detail.next_at, unless a keeper has to find it), 'unchanged' (it was not paused), 'absent'. Errors as of schedule_pause.
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

-- Enqueues a job now, beside the plan, which stays as it is; also of a schedule that is paused. Called twice it enqueues two.
-- outcome 'enqueued' (detail.job), 'absent'. Errors as of schedule_pause.
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

-- Deletes a schedule, and with it which ticks were made. Jobs that it has enqueued stay. A program that still puts it makes it anew when
-- it starts: if its first_at has passed, ticks from then on are due again.
-- outcome 'deleted', 'absent'. Errors as of schedule_pause.
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

-- Schedules, payload left out. A keeper looks here for those that are not paused, and whose next_at is null or has come.
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

-- Commands: a caller asks, once, and is told the same answer each time.
--
--   one transaction                        leased
--
--   command_open                           command_claim
--        │ the key is locked,                   │
--        │ nothing is written              processing ──── lease over ────┬── repeatable: processing again, under a new fence
--    your rows                              │   │   │                     └── else: unknown ── the attempt's own end, or command_settle
--        │                     command_fail │   │   │ command_fail, final
--   command_close           failed_retryable    │   failed_final
--        │                   (ask it again)     │ command_succeed
--    succeeded                              succeeded
--
-- One transaction: the key is held by an advisory lock from command_open to the end of the transaction, and the row is written
-- once, as it ends, with your rows. Behind the lock stands the primary key: of two transactions that both ended one key the second
-- is refused, with all its rows. Leased: the claim commits alone, and others see that somebody works on it, until when. Every later
-- word names the fence, of both forms.

-- Opens a command, in the transaction that will do the work and end it: call it first. It locks the key until that transaction ends,
-- looks, and draws a fence. Nothing is written, so a transaction that dies leaves nothing.
--
-- outcome 'new_claim', 'retryable_failure' (the attempt before failed): the key is yours. Do the work, then command_close with fence and
-- xact as they are; or roll back, and command_fail with the fence. Until then COMMIT fails with 2D000 and rolls back.
-- outcome 'replay_success', 'final_failure': the stored answer; do nothing but commit before you pass it on. detail.unproved:
-- COMMIT waits for the synchronous standbys.
-- outcome 'processing_active': somebody else is at it; ask again after retry_after_ms. The other columns may be null.
-- outcome 'unknown': an attempt may have taken effect and did not say. Commit; see command_settle.
-- outcome 'mismatch': the key came before with another payload (detail: stored_hash, given_hash).
--
-- p_idle_ms: the server ends the transaction after so long a silence (idle_in_transaction_session_timeout); null leaves the
-- session's own limit. options: wait_ms (default 0: how long to wait for another transaction that has the key), raise boolean
-- (what is not yours and no replay is raised: P4002, P4029, P4030, P4031).
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
  -- Helpers are called only to say what is wrong.
  if (octet_length(p_scope) between 1 and 255 and octet_length(p_key) between 1 and 255 and octet_length(p_hash) = 32
      and p_options - '{wait_ms,raise}'::text[] = '{}') is not true
  then
    perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
            pawl_v1._check_options(p_options, '{wait_ms,raise}');
  end if;
  if p_idle_ms is not null then
    v_idle := set_config('idle_in_transaction_session_timeout', p_idle_ms::text, true); -- PERFORM would run a query
  end if;

  -- First the lock, then the look, each with a snapshot of its own: who had the lock before has committed what is seen.
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
    execute 'declare pawl_command_' || fence || ' no scroll cursor with hold for select pawl_v1._command_unended(' || fence || ')'; -- see there
    return next;
    return;
  end if;

  if v_hash <> p_hash then
    outcome := 'mismatch';
  else
    -- A wide row is dear, and a new key has none: only now. By another statement it may be another row.
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
      if current_setting('synchronous_standby_names') <> '' or pg_is_in_recovery() then -- a standby raises 25006
        detail := pawl_v1._unproved();
      end if;
  end case;
  return next;
end
$$;

-- What was opened in this transaction, under this fence.
create or replace function pawl_v1._command_xact(p_fence bigint)
returns text
language sql
return pg_current_xact_id()::text || ' ' || p_fence;

-- Makes COMMIT fail while a command is open. command_open declares a cursor WITH HOLD over it; COMMIT runs the query of such a cursor, since
-- its rows are to outlive the transaction, and an error of the query rolls all back. command_close and command_fail close the cursor.
-- PREPARE TRANSACTION refuses such a cursor by itself (0A000). A rollback drops it.
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

-- The answer of a command that is no final one: the row is looked at again, under its lock, if the key is ours.
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
    -- Locked: an attempt is ending it.
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
  if v_outcome = 'retryable_failure' then -- stays as it is, locked, until command_close or command_fail
    v_seen.fence := nextval('pawl.fence_seq');
    v_seen.attempts := v_seen.attempts + 1;
  elsif v_outcome = 'unknown' and v_seen.status = 'processing' then -- its lease is over, and who knows how far it came
    v_seen := pawl_v1._command_take(v_seen, 'unknown', '{}');
  end if;
  return query
  select v_outcome, v_seen.fence, v_seen.attempts::int, v_seen.failure_code::text, v_seen.failure_message::text;
end
$$;

-- The counterpart of command_open, as the last statement before COMMIT: writes the command, ended well, with its answer. Its memory
-- counts from now. p_fence, p_xact: what command_open answered.
--
-- options: retention_ms (default 24 h), response_status (100 to 999), response_headers object, result_ref_type, result_ref_id (what
-- was made).
-- outcome 'succeeded'. 25000: the work has rolled back the transaction in which the command was opened, and what it committed behind that
-- is durable; tell command_fail with option unknown. P4020: a newer attempt owns it, or it has ended. Both abort the transaction.
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
    -- Over a failure that may be tried again: its row is locked since command_open.
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
    when invalid_cursor_name then -- the work has said CLOSE ALL
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

-- Claims a key. A finished command is answered from its row by a plain read; claims of one key go one at a time.
--
-- outcome 'new_claim', 'retryable_failure' (the attempt before failed), 'processing_stale' (its lease was over, and this claim
-- says repeatable): you hold it. Do the work, then command_succeed or command_fail with this fence.
-- outcome 'replay_success', 'final_failure': the stored answer; do nothing but commit before you pass it on. detail.unproved:
-- COMMIT waits for the synchronous standbys.
-- outcome 'processing_active': somebody else holds it, nothing changed; ask again after retry_after_ms. Also when another
-- transaction is claiming or ending it right now, in which case the other columns may be null. detail.claimed_by: who.
-- outcome 'unknown': the attempt before may have taken effect and did not say. Nobody holds it; see command_settle.
-- outcome 'mismatch': the key came before with another payload (detail: stored_hash, given_hash). Nothing changed.
-- 40001: restart the transaction.
--
-- options: lease_ms (default 300000), wait_ms (default 0: how long to wait for the transaction of another claim), retention_ms
-- (default 24 h: memory of a finished command), repeatable boolean (running the handler again is safe: all it writes is fenced),
-- claimed_by text (for people), raise boolean (processing_active, final_failure, unknown and mismatch are raised as P4029, P4030,
-- P4031 and P4002).
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
  -- Helpers cost as much as the claim itself, so they are called only to say what is wrong.
  if (octet_length(p_scope) between 1 and 255 and octet_length(p_key) between 1 and 255 and octet_length(p_hash) = 32
      and p_options - '{lease_ms,wait_ms,retention_ms,repeatable,claimed_by,raise}'::text[] = '{}') is not true
  then
    perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
            pawl_v1._check_options(p_options, '{lease_ms,wait_ms,retention_ms,repeatable,claimed_by,raise}');
  end if;

  for v_try in 1..4 loop
    -- Most answers come from here: no lock, no write.
    select c.*
      into v_seen
      from pawl.command as c
     where c.scope = p_scope
       and c.key = p_key;
    if found then
      v_outcome := pawl_v1._command_standing(v_seen, p_hash);
      exit when v_outcome is not null;
    end if;

    -- Claims of one key go one at a time: those that ask only learn that it is taken, instead of waiting in the INSERT; and
    -- fences are drawn in the order in which the key is held.
    if not v_locked then
      v_locked := pg_try_advisory_xact_lock(pawl_v1._command_lock(p_scope, p_key));
      if not v_locked then
        v_wait := pawl_v1._int_option(p_options, 'wait_ms', 0, 0, 600000);
        v_locked := pawl_v1._command_wait(p_scope, p_key, v_wait);
        continue when v_locked; -- what was waited for may have ended it
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

    -- Locked: an attempt is ending it, or it is being purged.
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
      -- Whether an attempt that fell silent took effect, nobody knows: it runs again only if the claim says that this is safe.
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
           then pawl_v1._unproved()
           else '{}'
         end;
end
$$;

-- Says that the row has a status that a later version knows.
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

-- The detail of a mismatch. Like any answer that was only read, it waits for replication.
create or replace function pawl_v1._command_mismatch(p_stored bytea, p_given bytea)
returns jsonb
language sql
return jsonb_build_object('stored_hash', encode(p_stored, 'hex'), 'given_hash', encode(p_given, 'hex'))
  || case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unproved() end;

-- What a row answers to whoever claims its key, or null: it may be claimed. The payload is looked at first: a caller who
-- changes it is told so while the first one is still being worked on.
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
return hashtextextended(octet_length(p_scope)::text || ':' || p_scope || p_key, 1885435758); -- int || text is stable: never inlined

-- Waits for the lock of a key and reports whether it came.
create or replace function pawl_v1._command_wait(p_scope text, p_key text, p_ms int)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  if p_ms = 0 then -- which lock_timeout takes for ever
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

-- Takes over what nobody holds, or makes it unknown. The row is locked since its status was read.
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

-- Raises what the caller asked to be raised; returns for the other outcomes.
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

-- Says why an end or a renewal is refused. DETAIL: absent, rolled_back (the claim's transaction did not commit), superseded (a
-- newer attempt), or the status in which this very attempt ended.
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

-- Locks a claimed command and proves the fence. Call it first in the transaction that will write and end it: a stale
-- attempt then stops before it writes, and nobody takes over while the transaction is open.
-- outcome 'held'. P4020: not the holder any more. 55P03: another transaction has the row; nothing is known yet.
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

-- Renews the lease; call it at a third of it. An attempt whose lease ran out, and whom nobody has replaced, is back.
-- options: lease_ms (default 300000). outcome 'renewed'. P4020: not the holder any more. 55P03 as of command_hold.
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

-- Ends a command well and stores its answer, in the transaction that did the work. Its memory counts from now.
--
-- options: response_status (100 to 999), response_headers object, result_ref_type, result_ref_id (what was made).
-- outcome 'succeeded'. P4020: not the holder any more; DETAIL says why. It aborts the transaction, so that the work of such
-- an attempt is rolled back. It is never accepted twice.
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

-- Ends an attempt badly. In the transaction that opened the command, after rolling back to a savepoint behind command_open; or in one
-- of its own. If there is no row it is inserted, unless somebody else has the key by then: it waits for their end. Telling the same
-- failure twice is no error.
--
-- p_error: {"error": text, "code": text}. options: final boolean (the failure is the answer from now on), unknown boolean (the
-- attempt may have taken effect), retention_ms as of command_claim, for a row that is inserted.
-- outcome 'failed_retryable', 'failed_final' or 'unknown': what the row holds now. P4020: another attempt has the key, or it
-- has ended; nothing is written, claim again to read the answer.
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
  v_proof  jsonb := '{}';
  v_open   refcursor := 'pawl_command_' || p_fence;
begin
  perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
          pawl_v1._check_options(p_options, '{final,unknown,retention_ms}');
  perform pawl_v1._command_check_fence(p_fence);

  for v_try in 1..4 loop
    -- Held by this attempt; or its transaction was rolled back over an older failure, which is still the newest word.
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

    -- Another transaction may have opened the key since, of which there is no row yet: its end decides.
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
    if v_seen.fence = p_fence and v_seen.status in ('failed_retryable', 'failed_final') then -- told before
      if current_setting('synchronous_standby_names') <> '' then
        v_proof := pawl_v1._unproved();
      end if;
      exit;
    end if;
    if v_seen.key is not null and (v_seen.fence > p_fence or v_seen.status <> 'failed_retryable') then
      perform pawl_v1._command_refuse(p_scope, p_key, p_fence);
    end if;
    v_seen := null; -- it changed under our eyes: once more
  end loop;
  if v_seen.key is null then
    raise exception 'command % of scope % keeps changing', p_key, p_scope
      using errcode = '40001', hint = 'restart the transaction';
  end if;
  if exists (select from pg_cursors as o where o.name = v_open::text) then -- it was opened in this transaction, which may commit from here on
    close v_open;
  end if;
  return query
  select v_seen.status::text, v_seen.attempts::int, v_proof;
end
$$;

-- A fence that was never issued would lie above all that are to come.
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

-- Commands over time: purge, verdicts on what is unknown, counts, views.

-- Forgets finished commands whose memory is over, at most p_limit of them. What is processing, unknown or waiting for a retry
-- never leaves by age.
--
-- options: older_than_ms (default 24 h): looks at no command created since. The walk through the index of ages ends there;
-- raise it to the shortest retention_ms in use. since: see job_key_purge.
-- outcome 'purged'; detail.next: see job_key_purge.
create or replace function pawl_v1.command_purge(p_limit int default 10000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- it walks the index of ages in order: see docs/decisions/0036-purging.md
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
  select array_agg(d.ctid), max(d.created_at) -- their places: see job_key_purge
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

-- Settles a command of which nobody knew whether it took effect, after somebody found out. It leaves a record in pawl.audit,
-- and the attempt that fell silent is refused from now on.
--
-- p_fence: the command's fence when you found out (stale_commands). The verdict is about the attempts up to that one.
-- p_verdict: 'executed' (it took effect: succeeded) or 'not_executed' (it did not: the next claim may run it).
-- options: result text, result_ref_type, result_ref_id: the answer to give from now on, if it was executed.
-- outcome 'settled'; 'refused' (detail.status: it is not unknown); 'moved' (another attempt has begun since; detail.fence is its fence:
-- find out again); 'absent'. P4004: fence, verdict, actor or reason.
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

-- A command as the audit keeps it: not the answer, but its length.
create or replace function pawl_v1._command_record(p_command pawl.command)
returns jsonb
language sql
stable
return to_jsonb(p_command) - '{result,response_body,response_headers}'::text[]
  || jsonb_build_object('result_octets', octet_length((p_command).result), 'response_octets', octet_length((p_command).response_body));

-- Adds to the counts of answers given again. A replay reads and writes nothing, so whoever gives them counts them, and tells
-- now and then. outcome 'counted'.
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

-- Forgets the counts of scopes that have no command any more and were told nothing of for p_older_than_ms, at most p_limit of them
-- (1 to 100000).
-- outcome 'purged'.
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

-- Commands that nobody may finish without help, and why. Reads the whole table.
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

-- What a scope asked for and what it was spared: commands, those that needed a second attempt, the most attempts of one, and
-- answers given again as far as they were counted. Reads the whole table.
create or replace view pawl_v1.suppression_by_scope as
select c.scope,
       count(*) as first,
       count(*) filter (where c.attempts > 1) as retried,
       max(c.attempts) as max,
       coalesce((select r.replays from pawl.replay as r where r.scope = c.scope), 0) as replays
  from pawl.command as c
 group by c.scope;

-- The outbox: events that exist if and only if the transaction committed that appended them.
--
--   your transaction:  your rows + outbox_append ── commit ──▶ job in queue 'outbox/SINK', in the lane of its aggregate
--                                                                  │ claim, publish, finish; then the next of the aggregate
--                                                                  ▼
--                                                            the sink, at least once, each time with the same event id
--
-- An event is a job of kind 'event' whose handler publishes it. So the claim, the lease, retries, dead letters, lanes and the
-- operator's verbs are those of jobs; here is only what an event is, and what is looked at.

-- Parts that cannot run into each other: each behind its length in octets, and hashed where that is longer than a key may be.
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

-- Checks what names an event; null if nothing is wrong.
create or replace function pawl_v1._check_event(p_sink text, p_type text, p_aggregate_type text, p_aggregate_id text, p_scope text,
  p_key text, p_headers jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
declare
  -- CloudEvents has no place for control characters (type String), nor has a header of HTTP.
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

-- The headers under which an event is stored. Absent ones are those that follow from its row.
create or replace function pawl_v1._event_headers(p_id text, p_type text, p_aggregate_type text, p_aggregate_id text, p_headers jsonb)
returns jsonb
language sql
stable -- as jsonb_build_object is
return coalesce(nullif(p_headers, 'null'), '{}')
    || case when p_aggregate_id is null then jsonb_build_object('ce-id', p_id, 'ce-type', p_type)
         else jsonb_build_object('ce-id', p_id, 'ce-type', p_type,
           'pawl-aggregate-type', p_aggregate_type, 'pawl-aggregate-id', p_aggregate_id)
       end;

-- Appends one event, in the caller's transaction: it is published if and only if that commits. Events of one aggregate are
-- published one at a time, in the order in which they were appended; until the transaction ends, others that append to the
-- aggregate wait, so append late.
--
-- p_sink: the relay that is to publish it, which works off queue 'outbox/' || p_sink. Aggregate null, null: no order.
-- options: scope and key text, both or neither (the same scope, key and type append once; default: a new event each time), hash
-- text (64 hex digits; default: aggregate and payload), retention_ms (memory of the key, default 24 h), max_attempts (default 25),
-- headers object of texts (content-type, ce-source, ce-time, traceparent, your own), lane_policy (of an aggregate without
-- events: block, park or skip; default block).
-- outcome 'appended' or 'duplicate' (nothing was stored; event_id and job_id are the first one's). event_id: what consumers
-- recognise a second delivery by. P4002: the key came with another aggregate or payload.
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

-- Appends up to 10000 events in one statement; row i of every array belongs to event i. An absent array or a null element means
-- the default of outbox_append. Aggregates and keys are locked in sorted order, as by job_enqueue_many.
--
-- options: for all, retention_ms, lane_policy.
-- n counts from 1; the rest as of outbox_append. P4002, and nothing appended: some key came with another payload.
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

-- Effects: calls of systems that share no transaction with us. Plan inside, call outside, record after.
--
--   step_begin ── call ──▶ (you call the provider) ──▶ step_end ── executed ──▶ succeeded
--        ▲    │                                               │        refused ─▶ failed_final
--        │    ├── probe ─▶ (you ask the provider) ──▶ step_end       not_sent, not_executed ─▶ planned: begin again
--        │    ├── wait                                        │
--        │    └── unknown ◀── nobody can tell ────────────────┘
--        ├──────── step_settle: somebody found out
--        └──────── step_again: what was refused may be asked anew, under a new key
--
-- Two kinds of rows. pawl.step is state: each change names a fence, or comes from evidence. pawl.step_call is evidence, one
-- row a call: it is accepted from any attempt, however late, because the provider acted or did not, whoever holds the job now.
--
-- A call is in doubt while nobody said how it ended, or it ended 'ambiguous' (the request left, no answer came). What may be done
-- in spite of a doubt is the step's recovery:
--   keyed              call again with the same key, while the provider is sure to remember it; then unknown
--   checked            ask the provider, once nothing sent can still arrive; then call, or take what is there
--   at_most_once       unknown
--   repeatable         call again: the request is idempotent by nature
--   accept_duplicates  call again, and count it
--
-- Call all of these in transactions of their own, the owner's fence proved first (job_hold, command_hold): nothing may be called
-- before its plan has committed.

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

-- How long a provider's memory is relied on: without its last tenth, a minute at most, which is left to clocks and to the way there.
create or replace function pawl_v1._step_memory(p_memory interval)
returns interval
language sql
immutable
return p_memory - least(p_memory / 10, interval '1 minute');

-- The calls of a step of which nobody knows whether they were executed, and until when the last of them may have been sent: until its end
-- was told, or its time was over.
create or replace function pawl_v1._step_doubts(p_step_row pawl.step, out calls int, out until timestamptz)
language plpgsql -- which keeps the plan: one in SQL is planned at each call
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

-- The job that waited for a verdict goes on, unless another of its steps is unknown too. Its row is locked since before the
-- step's, which is the order of its worker.
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

-- Whether a step is unknown, and the job that waits for a verdict, which is locked now, before the step's own row.
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
  -- Updated, not only locked: of two verdicts on two steps of a job, the later must not decide by a snapshot from before the first.
  update pawl.job as j
     set available_at = j.available_at
   where j.id = _step_is_unknown.job_id;
end
$$;

-- A step that has become unknown, or another job's, since _step_is_unknown looked: its job is not locked, and locking it now
-- could deadlock with its worker.
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

-- A step as the audit keeps it: not the result, but its length.
create or replace function pawl_v1._step_record(p_step_row pawl.step)
returns jsonb
language sql
stable
return to_jsonb(p_step_row) - 'result' || jsonb_build_object('result_octets', octet_length((p_step_row).result));

-- What a step may do next.
--
-- p_scope, p_key: the intent. p_step: its name within it. p_hash: SHA-256 of the request; another one under the same step is
-- P4002.
-- options: recovery (required); provider_key (required: the same at every attempt); provider, for people; timeout_ms (default
-- 30000: nothing is sent later than this); memory_ms (keyed: how long the provider remembers a key, default 24 h); settle_ms
-- (checked, default 10000: how long after the last moment of sending a request may still take effect); retention_ms (default 30
-- days: memory of the finished step); job_id (the job that is to wait for a verdict).
-- outcome 'call': call now, with provider_key, not later than not_after; then step_end with this fence. detail.again: an
-- earlier call is in doubt.
-- outcome 'probe': ask the provider whether a call was executed; then step_end with 'executed', 'not_executed' or 'cannot_tell'.
-- outcome 'wait': ask again after retry_after_ms.
-- outcome 'replay_success', 'final_failure': how the step ended; do nothing. outcome 'unknown': see step_settle.
-- P4098: pawl.fence_seq gives out again what an earlier call of the step had; run pawl migrate up.
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
  v_last    bigint; -- the fence of the call before
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

  -- Another job may work for the owner than at first: a delivery that was replayed has a new one. The purge asks whether it may still run.
  if v_outcome in ('replay_success', 'final_failure') and (p_options ->> 'job_id')::bigint <> coalesce(v_step_row.job_id, 0) then
    update pawl.step as e
       set job_id = (p_options ->> 'job_id')::bigint
     where e.scope = p_scope
       and e.key = p_key
       and e.step = p_step;
  end if;
  if v_outcome in ('call', 'probe') then
    -- Only a first call starts the provider's memory; also one of which the provider says that it did nothing, for it came with
    -- the key.
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
    -- Another job may come to it: of a delivery that was forgotten, and came again.
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
           then pawl_v1._unproved()
           else '{}'
         end;
end
$$;

-- Says how a call or a probe ended. It is taken from any attempt: what the provider did is true whoever holds the job by now.
--
-- p_outcome of a call: 'executed' (it took effect; p_result is what it answered), 'refused' (a final answer: it did not and will
-- not), 'not_sent' (nothing left, or the provider says that it did nothing), 'ambiguous' (the request left and no answer came).
-- Of a probe: 'executed', 'not_executed', 'cannot_tell'.
-- A refusal ends the step if no other call of it is in doubt, or if the same key went with all of them (keyed: the answer is the
-- key's); else nobody can tell, and the step is unknown.
-- options: keyless boolean (the call of a keyed step carried no key: if it may have been executed the step is unknown, since another call would be a second
-- effect), reference (the provider's name for what it made), error, code (of a refusal), exchange (an object: what was seen on the
-- way, kept with the call).
-- outcome: the step's status now: 'planned', 'succeeded', 'failed_final', 'unknown'; or 'absent' (purged). detail.late: a newer
-- call has begun since; detail.kept: the step had ended before, and what it held stays; detail.twice: the provider acted more than
-- once; detail.contradicts: it is against what was known. 40001: the step has become unknown this moment; restart.
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
  if coalesce(v_call.outcome, 'ambiguous') not in ('ambiguous', p_outcome) then -- what is known of a call stays
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
    when p_outcome = 'refused' and p_fence <= v_step_row.cleared then v_step_row.status::text -- settled since, or asked again under another key
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

-- Settles a step of which nobody could tell whether it was executed, after somebody found out. It leaves a record in pawl.audit, and
-- the job that waits for it goes on.
--
-- p_fence: the step's fence when you asked the provider (pawl_v1.steps). The verdict is about the calls up to that one.
-- p_verdict: 'executed' (the step succeeded), 'refused' (it never will) or 'not_executed' (it may be called again).
-- options: result text, reference: what the provider made; error, code: of a refusal.
-- outcome 'settled'; 'refused' (detail.status: it is not unknown); 'moved' (another call has begun since; detail.fence is its fence: ask the
-- provider again); 'early' (not executed or refused, but until detail.retry_after_ms are
-- over a frozen attempt may still send it); 'absent'. P4004: verdict, actor or reason. 40001: restart.
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

-- Has a step called again under a new key that its provider refused for good. The refusal is stored, and a provider repeats it for its key:
-- so a retry of the job alone meets it at once. Use it when what was refused may be accepted now: the customer has another card. The next
-- attempt of its owner calls: retry its job (job_retry). It leaves a record in pawl.audit.
--
-- If the provider took an earlier call after all, the new one is a second effect, since no key ties the two.
--
-- p_fence: the step's fence when you looked (pawl_v1.steps).
-- options: provider_key (1 to 255 octets; default: a random UUID): the key from now on. dry_run boolean: say what would be done, and do nothing.
-- outcome 'renewed' (detail: provider_key, job, calls), with dry_run 'would_renew'; 'refused' (detail.status: it was not refused; or
-- detail.executed: a call of it was executed); 'moved' (detail.fence: another call has begun since); 'early' (until detail.retry_after_ms are over a
-- frozen attempt may still send an earlier call); 'absent'. P4001: the key, or it is the old one. P4004: fence, actor or reason.
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

-- Forgets finished steps whose memory is over, and what was seen of them, at most p_limit; and what was planned for a job that is
-- gone, unless a call of it is in doubt. What is in doubt or unknown never leaves by age, nor does a step whose job or command may
-- still run again: a dead letter may be retried.
--
-- options: older_than_ms (default 24 h): looks at nothing created since. since: see job_key_purge.
-- outcome 'purged'; detail.next: see job_key_purge.
create or replace function pawl_v1.step_purge(p_limit int default 10000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- it walks the index of ages in order: see docs/decisions/0036-purging.md
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
  select array_agg(d.ctid), max(d.created_at) -- their places: see job_key_purge
    into v_due, v_next
    from (
      select e.ctid, e.created_at
        from pawl.step as e
       where e.created_at < v_before
         and e.created_at >= pawl_v1._since(p_options)
         and e.expires_at < clock_timestamp()
         and (e.status in ('succeeded', 'failed_final')
              or e.status = 'planned' and e.job_id is not null and (pawl_v1._step_doubts(e)).calls = 0)
         and not exists (select from pawl.job as j where j.id = e.job_id)
         and not exists ( -- the job that owns the delivery now, which may not have begun
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

-- Steps with what was seen of them. Look at status = 'unknown' first. It counts the calls of every step that it shows.
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

-- What stands still until somebody decides or something notices, of all kinds, and what to do about it.

-- The steps of a job: under its queue with its id, '@' and when it was enqueued, or, if it is a delivery that was stored, under its key.
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

-- What an operator may do about a dead letter, and what may have happened already.
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

-- p_kind: 'command', 'step', 'job' or null for all. Changes nothing; reads the whole of the tables it is about.
--
-- scope and key name the row: of a step scope and key are its owner's, with the step in detail; of a job the queue and the id.
-- class: 'unknown' (nobody can tell whether it took effect: needs a verdict), 'abandoned' (its attempt has gone, and the next claim
-- or sweep takes it), 'dead_letter' (nobody tries it again), 'orphaned' (a call in doubt that no attempt will follow up).
-- detail of a command and a step: fence, which a verdict names. detail of a job: attempts, crashes, code (of its last error),
-- message_key (of the delivery that it is).
--
-- options: limit int: at most so many rows of a kind and class (default all). advice boolean (default true): false leaves it out, which is what
-- takes most of the time.
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
           when c.status = 'unknown' then 'an attempt fell silent, and nobody declared the work repeatable'
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
           when j.id is null then 'a call went unanswered, and its job has ended or was none'
           else 'a call went unanswered, and its job is ' || j.status
         end,
         case
           when not v_advice then null
           when e.status = 'unknown' then 'ask the provider for ' || e.provider_key || ', then step_settle; or run step.Reconcile'
           when j.id is null then 'ask the provider for ' || e.provider_key || ' whether it was executed; only a new attempt of its owner can record it'
           else 'retry the job: its step asks, calls again or becomes unknown, as the recovery says'
         end,
         e.updated_at,
         jsonb_build_object('step', e.step, 'fence', e.fence, 'recovery', e.recovery, 'provider', e.provider, 'provider_key', e.provider_key)
    from (
      (select s.* from pawl_v1.steps as s where s.status = 'unknown' order by s.updated_at limit v_limit)
       union all
      (select s.*
         from pawl_v1.steps as s
         left join pawl.job as k on k.id = s.job_id
        where s.status = 'planned'
          and s.in_doubt > 0
          and s.last_not_after < clock_timestamp()
          and coalesce(k.status, 'succeeded') in ('dead_letter', 'cancelled', 'succeeded')
          and s.scope not like 'command/%'
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

-- The story of one intent: what the tables and the audit know of a key, in the order of time.

-- The first p_limit values of the column that leads a table's primary key: one probe of the index each, however many rows there are.
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

-- What is known of some jobs. A job whose row is gone has finished, or was discarded.
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
          select case when j.status in ('dead_letter', 'unknown') -- it is so since its last error; without one it was put there so
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

-- The jobs of deliveries that came under a key and were refused it: a known key with another payload, above all. The inbox has them under a
-- name of Pawl's own. An index leads to those that nobody tries; of those that are tried again after all, it finds which are among
-- the first 500 of such names.
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

-- The steps, of calls of other systems, that belong to a key or to some jobs.
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
  return query -- of a delivery with a second name they belong to that
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
  return query -- of a job the key is its id, '@' and when it was enqueued
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

-- The enqueue key of a job that was enqueued at p_at: it was taken in the same call, a moment before, and the index of ages leads to that
-- moment. Without statistics the planner would rather read another index from its beginning, so bitmaps alone are left to it.
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

-- The rows of explain, in no order. p_scopes, p_consumers, p_queues, p_owners (scopes of steps): where to look for the key.
create or replace function pawl_v1._story(p_key text, p_scopes text[], p_consumers text[], p_queues text[], p_owners text[])
returns table (at timestamptz, kind text, scope text, key text, event text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  v_jobs   bigint[] := '{}';
  v_known  text[] := '{}'; -- scopes and consumers in which the key is known: an event may be named after it
  v_seen   jsonb := '[]';  -- deliveries: [consumer, message id]
  v_steps  jsonb := '[]';  -- steps: [scope, key, step]
  v_step   pawl.step;
  v_until  timestamptz;
begin
  -- Jobs first, since they lead to deliveries: the key as an id, and the jobs that own it as a key.
  if p_key ~ '^[1-9][0-9]{0,17}$' then
    select coalesce(array_agg(f.id), '{}')
      into v_jobs
      from (select j.id from pawl.job as j where j.id = p_key::bigint
             union all
            (select a.id from pawl_v1.archive as a where a.id = p_key::bigint limit 1)) as f (id);
    if v_jobs = '{}' and (exists (select from pawl.audit as a where a.target = 'job ' || p_key)
                          or exists (select from pawl.stale_write as w where w.kind = 'job' and w.key = p_key)) then
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

  -- A stored delivery names itself in the headers of its job; an enqueue key stands in no job, but was taken just before it.
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

  -- Enqueue keys: the key itself, those of events that were appended under it ("scope key type", each behind its length), and
  -- that of a job which was asked for by its id.
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

  -- The audit names what it is about in one text. What was deleted is known by it alone, so it is asked for every name.
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

-- Tells all that the tables and the audit know of a key, in the order of time: what was asked for, what became of it, who changed
-- it by hand, and when it will be forgotten. p_key: the key of a command, a delivery, a job or an event, the id of
-- a job, or the resource of a gate. It reads by indexes only, shows no payload and changes nothing.
--
-- options: scope text: look there only, a command's scope, a consumer or a queue. Without it the first 500 of each are looked in.
-- kind, scope, key: what the row is about ('command', 'delivery', 'gate', 'enqueue_key', 'job', 'step'); of a job the queue and the
-- id, of a step its owner's. event: the status for what is so now, the function for what was done by hand, else what happened. at is later than now for what is to
-- come, and null for what has no time.
-- The last row has kind 'looked': detail.scopes, consumers, queues, steps (how many), and detail.beyond (which of them were more).
create or replace function pawl_v1.explain(p_key text, p_options jsonb default '{}')
returns table (at timestamptz, kind text, scope text, key text, event text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
set enable_seqscan = off -- each read has an index, whatever the statistics say
set jit = off            -- and if they say nonsense, compiling takes a hundred times as long as reading
as $$
declare
  v_most      constant int := 500;
  v_scope     text := p_options ->> 'scope';
  v_scopes    text[] := array[v_scope];
  v_consumers text[] := array[v_scope];
  v_queues    text[] := array[v_scope];
  v_owners    text[] := array[v_scope, 'command/' || v_scope, 'inbox/' || v_scope, 'job/' || v_scope];
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
  end if;
  v_beyond := array_remove(array[
    case when cardinality(v_scopes) > v_most then 'scopes' end,
    case when cardinality(v_consumers) > v_most then 'consumers' end,
    case when cardinality(v_queues) > v_most then 'queues' end,
    case when cardinality(v_owners) > v_most then 'steps' end], null);
  return query
  select s.at, s.kind, s.scope, s.key, s.event, s.detail
    from pawl_v1._story(p_key, v_scopes[ : v_most], v_consumers[ : v_most], v_queues[ : v_most], v_owners[ : v_most]) with ordinality
           as s (at, kind, scope, key, event, detail, n)
   order by s.at nulls last, s.n;
  return query
  select null::timestamptz, 'looked', v_scope, p_key, 'looked', jsonb_build_object(
           'scopes', cardinality(v_scopes[ : v_most]), 'consumers', cardinality(v_consumers[ : v_most]),
           'queues', cardinality(v_queues[ : v_most]), 'steps', cardinality(v_owners[ : v_most]), 'beyond', to_jsonb(v_beyond));
end
$$;

-- What the purges would delete, counted; and the record of a purge by hand.

-- Checks what a purge is told, and returns its cut-off: no row younger than that goes.
create or replace function pawl_v1._purge_cut_off(p_table text, p_options jsonb)
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_options(p_options, '{consumer,older_than_ms,unreported}');
  if (p_table in ('command', 'job_key', 'step', 'inbox', 'delivery', 'replay', 'fence')) is not true then
    raise exception 'no table of that name is purged: %', coalesce(p_table, 'null')
      using errcode = 'P4004', hint = 'known here: command, job_key, effect, inbox, delivery, replay, fence';
  end if;
  if p_table in ('inbox', 'delivery') then
    perform pawl_v1._check_scope('consumer', p_options ->> 'consumer');
  end if;
  return pawl_v1._before(pawl_v1._int_option(p_options, 'older_than_ms',
           case when p_table in ('command', 'job_key', 'step') then 86400000 end, 0, 315360000000));
end
$$;

-- Counts the rows of a table that its purge would delete now. Reads the whole table.
--
-- p_table: 'command', 'job_key', 'step', 'inbox', 'delivery', 'replay' or 'fence'. options: consumer (of inbox and delivery, required there),
-- older_than_ms (required of inbox, delivery, replay and fence; of the others as of their purge), unreported (as of inbox_purge).
-- outcome 'counted'. P4004: the table or an option; or an inbox whose consumer remembers for longer, or never reported: see inbox_purge.
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
              or e.status = 'planned' and e.job_id is not null and (pawl_v1._step_doubts(e)).calls = 0)
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

-- Records a purge by hand in pawl.audit, with the verb purge. A purge runs in many transactions, so its caller counts the rows and
-- calls this once, when the purge has ended or has stopped early. Consumers and workers do not record what they purge by themselves.
--
-- p_rows: how many rows were deleted. null: only check the arguments and the caller's right to record, before the first row is deleted.
-- p_table and options: as of purge_count. before has the options, table, cut_off (no younger row was deleted) and rows; after is null.
-- outcome 'recorded', 'checked' (p_rows is null: nothing is written). P4004, P4000: an argument or an option.
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

insert into pawl.migration (version, name, min_client, api_hash)
values (1, 'init', 1, '196899ea0627825a407f793177c0557c3e639a8ee73d4be6bf1b56c784eb5823');

do $$
begin
  perform pg_catalog.set_config('search_path', pg_catalog.current_setting('pawl.search_path'), true);
end
$$;

commit;
