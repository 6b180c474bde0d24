set search_path = pg_catalog, pg_temp;

-- Operators and functions that fit Pawl's types better than PostgreSQL's own. Any path that
-- contains public finds them.
do $$
declare
  v      record;
  v_name text;
begin
  for v in
    with type as (
      select format_type(t.oid, null) as name, t.typnamespace = to_regnamespace('pawl') as ours
        from pg_type as t
       where t.typtype = 'd' and t.typnamespace = to_regnamespace('pawl')
          or t.oid in ('text'::regtype, 'varchar'::regtype, 'name'::regtype, '"char"'::regtype, 'int2'::regtype, 'int4'::regtype, 'int8'::regtype,
                       'numeric'::regtype, 'float8'::regtype, 'jsonb'::regtype, 'bytea'::regtype, 'timestamptz'::regtype, 'interval'::regtype,
                       'bool'::regtype, 'text[]'::regtype, 'int8[]'::regtype, 'oid'::regtype, 'xid'::regtype, 'regnamespace'::regtype)
    )
    select l.name as l, r.name as r
      from type as l
     cross join type as r
     where l.ours or r.ours
        or l.name in ('text', 'character varying', 'integer', 'bigint', 'jsonb') and r.name in ('text', 'character varying', 'integer', 'bigint', 'jsonb')
  loop
    execute format('create function public.%I(%s, %s) returns boolean language plpgsql as %L', 'of_' || md5(v.l || ' ' || v.r), v.l, v.r,
      format('begin perform public.hijack(%L); end', 'an operator of ' || v.l || ' and ' || v.r));
    foreach v_name in array array['=', '<>', '<', '<=', '>', '>=', '||', '+', '-', '*', '/', '%', '&', '|', '->', '->>', '?', '~', '!~', '~~', '!~~', '@>'] loop
      begin
        execute format('create operator public.%s (leftarg = %s, rightarg = %s, function = public.%I)', v_name, v.l, v.r, 'of_' || md5(v.l || ' ' || v.r));
      exception
        when duplicate_function then null; -- a copy from above
      end;
    end loop;
  end loop;
  -- Functions with one argument, where PostgreSQL's argument is text, bytea or a number. The
  -- argument here is a domain of Pawl's or another text or integer type.
  for v in
    select distinct p.proname, t.name
      from pg_proc as p
     cross join (select format_type(t.oid, null) as name from pg_type as t where t.typtype = 'd' and t.typnamespace = to_regnamespace('pawl')
                 union all values ('character varying'), ('"char"'), ('smallint'), ('integer')) as t
     where p.pronamespace = 'pg_catalog'::regnamespace
       and p.pronargs = 1
       and p.proargtypes[0] in ('text'::regtype, 'bytea'::regtype, 'int8'::regtype, 'numeric'::regtype, 'float8'::regtype)
  loop
    begin
      execute format('create function public.%I(%s) returns text language plpgsql as %L', v.proname, v.name,
        format('begin perform public.hijack(%L); end', 'function ' || v.proname || '(' || v.name || ')'));
    exception
      when duplicate_function then null;
    end;
  end loop;
end
$$;

grant execute on all functions in schema public to public;
reset search_path;
