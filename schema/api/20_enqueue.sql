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
