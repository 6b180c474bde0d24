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
