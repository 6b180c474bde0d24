-- Commands over time: purge, verdicts on unknown outcomes, counts, views.

-- command_purge deletes finished commands whose memory has ended, at most p_limit (1 to 100,000).
-- Commands that are 'processing', 'unknown' or 'failed_retryable' are never deleted by age. Until
-- it is purged, a command is answered as before.
--
-- Outcomes:
--   purged  The column purged is the number of rows. detail.next as of job_key_purge.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   older_than_ms  (0 to 10 years, default 24 h) Skip commands created since. The call reads no
--                  further, so raise it to the shortest retention_ms in use.
--   since          (timestamp) As of job_key_purge.
create or replace function pawl_v1.command_purge(p_limit int default 10000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- walk the age index in order: docs/decisions/0036-purging.md
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
  select array_agg(d.ctid), max(d.created_at) -- ctids: see job_key_purge
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

-- command_settle ends an unknown command by a verdict, after you found out whether it took effect.
-- p_fence is the command's fence when you found out, as in stale_commands. The verdict covers the
-- attempts up to that one. The attempt that stopped renewing is refused from now on. It leaves a
-- record in pawl.audit.
--
-- Values of p_verdict:
--   executed      It took effect: the command has succeeded. The options are the answer.
--   not_executed  It did not: the next claim may run it.
--
-- Outcomes:
--   settled  detail.status is the status now.
--   refused  It is not unknown: detail.status.
--   moved    Another attempt has begun since: detail.fence. Find out again.
--   absent   There is no such command.
--
-- Errors:
--   P4004  Fence, verdict, actor, reason or an option.
--   55P03  The row was locked for 2 s.
--
-- Options:
--   result, result_ref_type, result_ref_id
--             (text) The answer, if it was executed.
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

-- _command_record is a command as the audit keeps it, with lengths in place of the response.
create or replace function pawl_v1._command_record(p_command pawl.command)
returns jsonb
language sql
stable
return to_jsonb(p_command) - '{result,response_body,response_headers}'::text[]
  || jsonb_build_object('result_octets', octet_length((p_command).result), 'response_octets', octet_length((p_command).response_body));

-- command_replayed adds to the counts of replayed answers. A replay writes no row, so the client
-- counts its replays and reports them from time to time. View suppression_by_scope shows them.
--
-- Outcomes:
--   counted  Done.
--
-- Errors:
--   P4004  An argument.
--   55P03  A row was locked for 2 s.
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

-- replay_purge deletes the counts of scopes that have no command any more and got no report for
-- p_older_than_ms, at most p_limit (1 to 100,000).
--
-- Outcomes:
--   purged  The column purged is the number of rows.
--
-- Errors:
--   P4004  An argument.
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

-- stale_commands shows commands that do not finish without help: 'unknown' ones, and those whose
-- lease has ended. Each has advice, and the fence that command_settle takes. It reads the whole
-- table.
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

-- suppression_by_scope shows for each scope: its commands ('first'), those that took a second
-- attempt ('retried'), and the most attempts of one ('max'). The column replays counts replayed
-- answers as far as command_replayed reported them. It reads the whole table.
create or replace view pawl_v1.suppression_by_scope as
select c.scope,
       count(*) as first,
       count(*) filter (where c.attempts > 1) as retried,
       max(c.attempts) as max,
       coalesce((select r.replays from pawl.replay as r where r.scope = c.scope), 0) as replays
  from pawl.command as c
 group by c.scope;
