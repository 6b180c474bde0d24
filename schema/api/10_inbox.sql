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
