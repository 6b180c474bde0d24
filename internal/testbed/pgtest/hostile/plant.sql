-- The path pg_catalog keeps this script from using the objects that it plants.
set search_path = pg_catalog, pg_temp;

-- Every planted object calls hijack. It advances a sequence, which no rollback undoes, and raises
-- an error.
create sequence public.hijacks;
grant usage, select on public.hijacks to public;
create function public.hijack(p_what text) returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  begin
    perform nextval('public.hijacks');
  exception
    when read_only_sql_transaction then null;
  end;
  raise exception using message = 'hijacked: ' || p_what || ', as ' || current_user;
end
$$;

-- Copies of PostgreSQL's own operators and functions with the same types. A path with public first
-- finds them.
do $$
declare
  v record;
begin
  for v in
    select o.oprname, format_type(nullif(o.oprleft, 0), null) as l, format_type(o.oprright, null) as r, format_type(o.oprresult, null) as result
      from pg_operator as o
     where o.oprnamespace = 'pg_catalog'::regnamespace
       and o.oprright <> 0
       and not exists (select from pg_type as t where t.oid in (o.oprleft, o.oprright, o.oprresult) and t.typtype = 'p' and t.typname !~ '^any(array|element|compatible.*)?$')
  loop
    begin
      execute format('create or replace function public.%I(%s) returns %s language plpgsql as %L',
        'op_' || md5(v.oprname || coalesce(v.l, '') || v.r), concat_ws(', ', v.l, v.r), v.result,
        format('begin perform public.hijack(%L); end', 'operator ' || v.oprname || ' (' || coalesce(v.l, '') || ', ' || v.r || ')'));
      execute format('create operator public.%s (%s rightarg = %s, function = public.%I)', v.oprname,
        case when v.l is not null then 'leftarg = ' || v.l || ',' end, v.r, 'op_' || md5(v.oprname || coalesce(v.l, '') || v.r));
    exception
      when feature_not_supported or invalid_function_definition or undefined_function or datatype_mismatch or wrong_object_type then null;
    end;
  end loop;
  for v in
    select p.proname, pg_get_function_identity_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result
      from pg_proc as p
     where p.pronamespace = 'pg_catalog'::regnamespace
       and p.prokind = 'f'
       and p.proname not like 'pg_stat%'
       and not exists (select from unnest(p.proargtypes::oid[] || p.prorettype) as a (oid)
                         join pg_type as t on t.oid = a.oid
                        where t.typtype = 'p' and t.typname !~ '^any(array|element|compatible.*)?$|^record$|^void$')
  loop
    begin
      execute format('create or replace function public.%I(%s) returns %s language plpgsql as %L', v.proname, v.arguments, v.result,
        format('begin perform public.hijack(%L); end', 'function ' || v.proname || '(' || v.arguments || ')'));
    exception
      when feature_not_supported or invalid_function_definition or syntax_error or undefined_object or datatype_mismatch or wrong_object_type or duplicate_function then null;
    end;
  end loop;
end
$$;

-- Aggregates: count(*), and those whose argument types have names.
do $$
declare
  v record;
begin
  for v in
    select p.proname, pg_get_function_identity_arguments(p.oid) as arguments
      from pg_proc as p
     where p.pronamespace = 'pg_catalog'::regnamespace
       and p.prokind = 'a'
       and not exists (select from pg_aggregate as g where g.aggfnoid = p.oid and g.aggkind <> 'n')
       and not exists (select from unnest(p.proargtypes::oid[]) as a (oid)
                         join pg_type as t on t.oid = a.oid
                        where t.typtype = 'p' and t.typname !~ '^any(array|element|compatible.*)?$')
  loop
    begin
      execute format('create or replace function public.%I(%s) returns boolean language plpgsql as %L',
        'agg_' || md5(v.arguments), concat_ws(', ', 'boolean', nullif(v.arguments, '')), format('begin perform public.hijack(%L); end', 'aggregate ' || v.proname));
      execute format('create aggregate public.%I(%s) (sfunc = public.%I, stype = boolean)', v.proname, coalesce(nullif(v.arguments, ''), '*'), 'agg_' || md5(v.arguments));
    exception
      when feature_not_supported or invalid_function_definition or syntax_error or undefined_object or datatype_mismatch or wrong_object_type or duplicate_function then null;
    end;
  end loop;
end
$$;

-- Types with the names of PostgreSQL's types.
do $$
declare
  v_name text;
begin
  execute 'create function public.no_value(text) returns boolean language plpgsql as $f$ begin perform public.hijack(''a type''); end $f$';
  foreach v_name in array array['text', 'jsonb', 'bytea', 'timestamptz', 'xid8', 'oid', 'regclass', 'regnamespace', 'regprocedure', 'xid', 'tid'] loop
    execute format('create domain public.%I as pg_catalog.%I check (public.no_value(''x''))', v_name, v_name);
  end loop;
end
$$;

grant execute on all functions in schema public to public;
reset search_path;
