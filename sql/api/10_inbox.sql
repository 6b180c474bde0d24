-- The inbox: deliveries already seen, per consumer.

-- Claims a delivery as the first statement of the handler's transaction. The row commits with the handler's rows or
-- not at all.
--
-- outcome 'processed': this transaction owns the delivery; do the work and commit.
-- outcome 'duplicate_ignored': an earlier transaction committed it, or a durable job owns it (job_id); do nothing and
-- acknowledge. result_ref is what the first one stored.
-- P4050: the same message id came with another payload. 55P03: another transaction is processing it right now; roll
-- back and leave the message for later, never acknowledge it.
--
-- outcome 'behind', with option lane only: as 'processed', but something of the lane is still open; call inbox_land.
--
-- options: result_ref text, stored with the row; lane text with queue text: the lane in which inbox_land would put the
-- delivery, locked until this transaction ends, so that deliveries of one lane come one at a time; lane_policy (of a lane that
-- is new: block, park or skip; default block).
create or replace function pawl_v1.inbox_claim(
  p_consumer   text,
  p_message_id text,
  p_hash       bytea,
  p_options    jsonb default '{}'
)
returns table (outcome text, result_ref text, job_id bigint, received_at timestamptz, processed_at timestamptz, detail jsonb)
language plpgsql
set lock_timeout = '50ms'
as $$
declare
  v_seen pawl.inbox;
  v_lane bigint;
begin
  -- Four calls cost a tenth of a claim (pgbench, 16 clients), so they are made only to say what is wrong.
  if (octet_length(p_consumer) between 1 and 255 and octet_length(p_message_id) between 1 and 255
      and octet_length(p_hash) = 32 and p_options = '{}') is not true
  then
    perform pawl_v1._check_scope('consumer', p_consumer);
    perform pawl_v1._check_key('message id', p_message_id);
    perform pawl_v1._check_hash(p_hash);
    perform pawl_v1._check_options(p_options, '{result_ref,lane,queue,lane_policy}');
    -- Before the delivery, so that whoever owns one of a lane already is either done with it or has landed it.
    if p_options ? 'lane' then
      v_lane := (pawl_v1._lanes_enter(array[p_options ->> 'queue'], array[p_options ->> 'lane'], p_options))[1];
    end if;
  end if;

  -- Insert or observe. The second statement has a snapshot of its own and so sees the winner; the loop is for a row
  -- that was forgotten in between.
  for v_try in 1..3 loop
    insert into pawl.inbox as i (consumer, message_id, hash, processed_at, result_ref)
    values (p_consumer, p_message_id, p_hash, clock_timestamp(), p_options ->> 'result_ref')
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
       and i.message_id = p_message_id;
    if found then
      if v_seen.hash <> p_hash then
        raise exception 'message % of consumer % came before with a different payload', p_message_id, p_consumer
          using errcode = 'P4050',
                detail = json_build_object('stored_hash', encode(v_seen.hash, 'hex'), 'given_hash', encode(p_hash, 'hex')),
                hint = 'a message id names one payload for ever: fix the sender, or key by content';
      end if;
      return query
      select 'duplicate_ignored', v_seen.result_ref, v_seen.job_id, v_seen.received_at, v_seen.processed_at, '{}'::jsonb;
      return;
    end if;
  end loop;
  raise exception 'message % of consumer % keeps appearing and disappearing', p_message_id, p_consumer
    using errcode = '40001', hint = 'restart the transaction';
end
$$;

-- Claims up to 1000 deliveries of one consumer in one statement; hashes[i] belongs to message_ids[i]. Keys are claimed in
-- their sorted order, so that two batches cannot deadlock. One delivery cannot spoil the others: what inbox_claim raises, this
-- answers by a row.
--
-- n counts from 1. outcome 'processed' and 'duplicate_ignored' as of inbox_claim; a message id twice in one batch is a
-- duplicate of its first row. 'mismatch': P4050 there (detail: stored_hash, given_hash). 'in_progress': 55P03 there; leave it
-- for later, never acknowledge it.
create or replace function pawl_v1.inbox_claim_many(
  p_consumer    text,
  p_message_ids text[],
  p_hashes      bytea[],
  p_options     jsonb default '{}'
)
returns table (n int, outcome text, result_ref text, job_id bigint, received_at timestamptz, processed_at timestamptz, detail jsonb)
language plpgsql
set lock_timeout = '50ms'
as $$
declare
  v_count int := coalesce(cardinality(p_message_ids), 0);
  v_fresh text[] := '{}';
  v_row   record;
begin
  perform pawl_v1._check_options(p_options, '{}');
  perform pawl_v1._check_batch('message_ids', v_count, 1000, coalesce(cardinality(p_hashes), 0));
  perform pawl_v1._check_scope('consumer', p_consumer);
  perform pawl_v1._check_key('message id', r.message_id), pawl_v1._check_hash(r.hash)
     from unnest(p_message_ids, p_hashes) as r (message_id, hash)
    where r.message_id is null or octet_length(r.message_id) not between 1 and 255
       or r.hash is null or octet_length(r.hash) <> 32;

  begin
    with put as (
      insert into pawl.inbox as i (consumer, message_id, hash, processed_at)
      select distinct on (r.message_id collate "C") p_consumer, r.message_id, r.hash, clock_timestamp()
        from unnest(p_message_ids, p_hashes) with ordinality as r (message_id, hash, n)
       order by r.message_id collate "C", r.n
      on conflict do nothing
      returning i.message_id
    )
    select coalesce(array_agg(p.message_id), '{}')
      into v_fresh
      from put as p;
  exception
    when lock_not_available then
      -- Another transaction has one of them. Each is asked for by itself, so that only that one is left out.
      perform set_config('lock_timeout', '5ms', true);
      for v_row in
        select distinct on (r.message_id collate "C") r.message_id, r.hash
          from unnest(p_message_ids, p_hashes) with ordinality as r (message_id, hash, n)
         order by r.message_id collate "C", r.n
      loop
        begin
          insert into pawl.inbox as i (consumer, message_id, hash, processed_at)
          values (p_consumer, v_row.message_id, v_row.hash, clock_timestamp())
          on conflict do nothing;
          if found then
            v_fresh := v_fresh || v_row.message_id;
          end if;
        exception
          when lock_not_available then null;
        end;
      end loop;
  end;

  -- A statement of its own, which sees the winners. Who is not seen is somebody's who has not ended, or was forgotten just now.
  return query
  select r.n::int,
         case
           when s.message_id is null then 'in_progress'
           when s.hash <> r.hash then 'mismatch'
           when f.message_id is not null and r.turn = 1 then 'processed'
           else 'duplicate_ignored'
         end,
         s.result_ref, s.job_id, s.received_at, s.processed_at,
         case
           when s.hash <> r.hash then jsonb_build_object('stored_hash', encode(s.hash, 'hex'), 'given_hash', encode(r.hash, 'hex'))
           else '{}'
         end
    from (select u.message_id, u.hash, u.n, row_number() over (partition by u.message_id order by u.n) as turn
            from unnest(p_message_ids, p_hashes) with ordinality as u (message_id, hash, n)) as r
    left join unnest(v_fresh) as f (message_id) on f.message_id = r.message_id
    left join lateral (
           select i.*
             from pawl.inbox as i
            where i.consumer = p_consumer
              and i.message_id = r.message_id
            limit 1) as s on true
   order by r.n;
end
$$;

-- Hands a delivery that this transaction claimed over to a durable job, which retries it from the database.
-- Call it after rolling back to the savepoint set behind inbox_claim, in the same transaction: nobody can win in
-- between. The delivery may then be acknowledged; its payload is args.
--
-- options: attempts (default 1: the try that failed), crashes (default 0; 1 makes the job run alone),
-- max_attempts, retry_in_ms (default 0), headers object, error object, dead boolean (straight to the dead letters), lane text
-- (behind what is open in it; as of inbox_claim), lane_policy.
-- outcome 'landed' or 'dead_letter'. P4020: the row was not claimed in this transaction.
create or replace function pawl_v1.inbox_land(
  p_consumer   text,
  p_message_id text,
  p_queue      text,
  p_kind       text,
  p_args       bytea,
  p_options    jsonb default '{}'
)
returns table (outcome text, job_id bigint, available_at timestamptz, detail jsonb)
language plpgsql
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
  perform pawl_v1._job_insert(v_id, p_queue, p_kind, p_args, '{"attempts": 1}'::jsonb || p_options, v_lane);

  -- A row that somebody else committed took effect and must not run again. This transaction sees a row whose inserter is
  -- still in progress only if it inserted the row itself, in whichever savepoint. age() counts from its own id.
  update pawl.inbox as i
     set job_id = v_id,
         processed_at = null
   where i.consumer = p_consumer
     and i.message_id = p_message_id
     and i.job_id is null
     and case
           when age(i.xmin) > 0 then false
           else pg_xact_status((pg_current_xact_id()::text::bigint - age(i.xmin))::text::xid8) = 'in progress'
         end;
  if not found then
    raise exception 'message % of consumer % was not claimed in this transaction', p_message_id, p_consumer
      using errcode = 'P4020', hint = 'call inbox_claim first; land only when it answered processed';
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
  select case v_job.status when 'dead_letter' then 'dead_letter' else 'landed' end, v_id, v_job.available_at, '{}'::jsonb;
end
$$;

-- Marks a landed delivery processed, in the transaction that holds its job and applies its effect.
-- outcome 'processed'. P4020: the job does not own the delivery any more (it was forgotten by an operator), so this
-- transaction must not commit.
create or replace function pawl_v1.inbox_settle(p_consumer text, p_message_id text, p_job_id bigint)
returns table (outcome text, detail jsonb)
language plpgsql
as $$
begin
  update pawl.inbox as i
     set processed_at = clock_timestamp()
   where i.consumer = p_consumer
     and i.message_id = p_message_id
     and i.job_id = p_job_id
     and i.processed_at is null;
  if not found then
    raise exception 'job % does not own message % of consumer %', p_job_id, p_message_id, p_consumer
      using errcode = 'P4020', hint = 'the delivery was forgotten or settled elsewhere; drop this attempt';
  end if;
  return query
  select 'processed', '{}'::jsonb;
end
$$;

-- Says for how long a consumer remembers its deliveries; null: for ever. Say it when you start, and once a minute from then on: of several
-- programs that say it, the longest holds, and what is shorter takes its place when the longer was not said for ten minutes.
--
-- options: horizon_ms (how long after it was sent a message may be delivered; default: nobody knows).
-- outcome 'reported', or 'outlasted': somebody else has said longer. window_ms: what holds; null: for ever.
create or replace function pawl_v1.consumer_report(p_consumer text, p_window_ms bigint, p_options jsonb default '{}')
returns table (outcome text, window_ms bigint, detail jsonb)
language plpgsql
set lock_timeout = '2s'
as $$
declare
  v_window bigint;
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
    return query
    select 'reported', p_window_ms, '{}'::jsonb;
    return;
  end if;
  select c.window_ms
    into v_window
    from pawl.consumer as c
   where c.name = p_consumer;
  return query
  select 'outlasted', v_window, '{}'::jsonb;
end
$$;

-- Refuses to forget what a consumer has promised to remember. One that was not seen for as long as that has retired: whatever it may
-- still be sent is refused as too old.
create or replace function pawl_v1._check_promise(p_consumer text, p_older_than_ms bigint)
returns void
language plpgsql
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
end
$$;

-- Checks what a purge is told, and returns from when on all stays.
create or replace function pawl_v1._purge_before(p_consumer text, p_older_than_ms bigint, p_limit int)
returns timestamptz
language plpgsql
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
-- until it answers less. What a job still owns stays, dead letters included. It waits for nobody, and nobody waits for it longer
-- than one batch takes: keep that below the 50 ms of inbox_claim.
--
-- p_older_than_ms: longer than the longest time after which a delivery may come again, or it runs again as new; P4004 if it is shorter
-- than consumer_report was told.
-- options: since: see job_key_purge.
-- outcome 'purged'; detail.next: see job_key_purge.
create or replace function pawl_v1.inbox_purge(p_consumer text, p_older_than_ms bigint, p_limit int default 1000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
as $$
declare
  v_before timestamptz;
  v_due    tid[];
  v_next   timestamptz;
  v_purged int;
begin
  perform pawl_v1._check_options(p_options, '{since}');
  v_before := pawl_v1._purge_before(p_consumer, p_older_than_ms, p_limit);
  perform pawl_v1._check_promise(p_consumer, p_older_than_ms);
  -- The consumer is not compared as it is, or the primary key would lead through everything that is remembered of it; the index of
  -- ages leads to what is old.
  select array_agg(d.ctid), min(d.received_at) -- their places: see job_key_purge
    into v_due, v_next
    from (
      select i.ctid, i.received_at
        from pawl.inbox as i
       where i.received_at < v_before
         and i.received_at >= pawl_v1._since(p_options)
         and i.consumer || '' = p_consumer
         and not exists (select from pawl.job as j where j.id = i.job_id)
       limit p_limit
         for update skip locked
    ) as d;
  delete from pawl.inbox as i
   where i.ctid = any (v_due)
     and i.received_at < v_before
     and not exists (select from pawl.job as j where j.id = i.job_id);
  get diagnostics v_purged = row_count;
  return query
  select 'purged', v_purged, jsonb_strip_nulls(jsonb_build_object('next', v_next));
end
$$;

-- Forgets one delivery by hand, so that the same message, when it comes again, runs as new. Nothing else runs a delivery past the
-- inbox. It leaves a record in pawl.audit. What was kept of the delivery as it came stays, for inbox_replay. If the delivery was kept, its
-- second name in the inbox, under which it took effect, is forgotten too.
--
-- outcome 'forgotten'; 'refused': a job owns the delivery (detail: job, status, hint); 'absent'. 55P03: an open transaction has the
-- row for more than 2 s; nothing changed.
create or replace function pawl_v1.inbox_forget(p_consumer text, p_message_id text, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set lock_timeout = '2s'
as $$
declare
  v_seen   pawl.inbox;
  v_status text;
begin
  perform pawl_v1._check_scope('consumer', p_consumer);
  perform pawl_v1._check_key('message id', p_message_id);
  perform pawl_v1._check_by(p_actor, p_reason);
  select i.*
    into v_seen
    from pawl.inbox as i
   where i.consumer = p_consumer
     and i.message_id = p_message_id
     for update;
  if v_seen.message_id is null then
    return query
    select 'absent', '{}'::jsonb;
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
     and i.message_id = p_message_id;
  -- Its second name, if it was this delivery that took effect under it: else what is sent again would be a duplicate of itself.
  delete from pawl.inbox as i
   using pawl.delivery as d
   where d.consumer = p_consumer
     and d.message_id = p_message_id
     and i.consumer = p_consumer
     and i.message_id = d.landing ->> 'semantic'
     and i.result_ref = p_message_id;
  insert into pawl.audit (actor, verb, target, reason, before)
  values (p_actor, 'inbox_forget', pawl_v1._audit_target('inbox', p_consumer, p_message_id), p_reason, to_jsonb(v_seen));
  return query
  select 'forgotten', '{}'::jsonb;
end
$$;
