-- Counts per minute and hour, for charts. If a process dies, its counts since the last call are
-- lost.

-- rollup_add adds to the current minute and hour, by the server's clock. p_source says what
-- p_scopes name: 'queue' or 'consumer'; '' means none. p_names are 1 to 40 characters of a-z and _;
-- p_values are 0 to 10^12. The arrays have equal length, up to 1000.
--
-- Minutes are kept for 24 hours and hours for 7 days; a call deletes up to 500 older rows of each.
-- Once an hour has 500 rows, further rows are added under scope ''.
--
-- Options: levels (boolean, default false). Counts are added up; of levels the maximum is kept.
-- Outcome: 'added'. sample: no level of a queue was added in this minute yet; if you can measure
-- levels, do it now. Errors: 55P03, a row was locked for 2 s.
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
