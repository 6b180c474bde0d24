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
