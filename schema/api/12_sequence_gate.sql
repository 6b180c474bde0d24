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
