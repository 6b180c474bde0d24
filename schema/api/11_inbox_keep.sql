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
