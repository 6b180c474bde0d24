-- Settings that end statements or sessions of Pawl too early: on the server, for this database, or
-- for logins that use it.
with needs (name, ms) as (
  values ('statement_timeout', 15000::numeric), -- what waits for locks, sweeps and purges
         ('idle_in_transaction_session_timeout', 5000), -- until a transaction has set its own
         ('idle_session_timeout', 5000),
         ('transaction_timeout', 5000 + greatest(30000, (
            select max((e.value ->> 'timeout_ms')::numeric)
              from pawl.worker as w
             cross join lateral jsonb_each(w.report -> 'handlers') as e
             where not w.seen_at + w.lease < clock_timestamp())))
), set_to (name, value, target) as (
  select s.name, s.setting, null
    from pg_catalog.pg_settings as s
   where s.source in ('configuration file', 'command line', 'environment variable', 'global')
   union all
  select split_part(c.pair, '=', 1), split_part(c.pair, '=', 2),
         concat_ws(' in ', 'role ' || quote_ident(r.rolname), 'database ' || quote_ident(d.datname))
    from pg_catalog.pg_db_role_setting as s
    left join pg_catalog.pg_roles as r on r.oid = s.setrole
    left join pg_catalog.pg_database as d on d.oid = s.setdatabase
   cross join unnest(s.setconfig) as c (pair)
   where (s.setdatabase = 0 or d.datname = current_database())
     and (s.setrole = 0 or r.rolname = current_user or r.rolcanlogin and not r.rolsuper and has_schema_privilege(r.oid, 'pawl_v1', 'usage'))
), told as (
  select t.name, t.target, t.value, n.ms,
         case
           when t.value ~ '^[0-9]+$' then t.value::numeric
           when t.value ~ '^[0-9.]+ *(us|ms|s|min|h|d)$' then extract(epoch from t.value::interval) * 1000
         end as set_ms
    from set_to as t
    join needs as n on n.name = t.name
)
select t.name as setting, t.target, t.value, t.ms::bigint::text as needs_ms
  from told as t
 where t.set_ms > 0
   and t.set_ms < t.ms
 order by t.name, t.target nulls first
