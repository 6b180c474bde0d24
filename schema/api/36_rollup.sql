-- Counts per minute and hour, for charts. If a process dies, its counts since the last call are
-- lost.

-- rollup_add adds a process's counts since its last call to the current minute and the current hour
-- of pawl.rollup, by the server's clock. The dashboard (docs/guides/dashboard.md) draws its charts
-- from that table. Workers and consumers in Go call it by themselves, about every 15 seconds.
--
-- p_source is what p_scopes name: 'queue' or 'consumer'. The scope '' belongs to none of them. A
-- name has 1 to 40 characters of a to z and _; for events take those of docs/reference/events.md. A
-- value lies between 0 and 10^12. Elements of the arrays belong together by position, up to 1,000
-- each.
--
-- The column sample asks for levels: no level of a queue was added in this minute. The chart takes
-- these, with the scope '' for all queues together: 'due', 'oldest_due_ms', 'processing',
-- 'dead_letters', 'unknown', 'workers', 'workers_silent'. Moments without 'workers' are shown as
-- gaps. With 'queues_left_out', queues without levels at that moment are shown as gaps too.
-- Otherwise they had none.
--
-- Sweepers of package guard add the events of a table under 'consumer' with the scope
-- 'guard/TABLE'. They also add the level 'final_rows': how many rows are not tried again
-- (docs/guides/choose.md#rows-that-are-not-tried-again).
--
-- Minutes are kept for 24 hours, hours for 7 days, and each call deletes up to 500 older rows of
-- both. If an hour has 500 rows, a count that would need another one is added under the scope ''.
--
-- These are statistics. If a process dies, the counts that it has not yet added are lost. If the
-- reply to a call is lost, you cannot know whether it was added. To count effects, count your rows.
--
-- Outcomes:
--   added  Done.
--
-- Errors:
--   55P03  A row was locked for 2 s.
--   P4004  An argument.
--
-- Options:
--   levels  (boolean) The values are levels: the highest is kept. Counts are added up.
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
   -- Same order in every call, so that two cannot deadlock.
   order by s.span, g.scope collate "C", g.name collate "C"
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

-- _rollup_forget deletes up to 500 older rows of one span. It skips locked rows.
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
