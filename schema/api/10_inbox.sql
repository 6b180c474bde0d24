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
