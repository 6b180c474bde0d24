-- Where autovacuum is off, and tables with $1 more dead rows than three times its threshold.
with hot as (
  select c.relname, s.n_dead_tup,
         (select o.option_value from pg_catalog.pg_options_to_table(c.reloptions) as o where o.option_name = 'autovacuum_enabled') as enabled,
         coalesce((select o.option_value::float from pg_catalog.pg_options_to_table(c.reloptions) as o where o.option_name = 'autovacuum_vacuum_threshold'),
                  current_setting('autovacuum_vacuum_threshold')::float)
         + greatest(c.reltuples, 0)
         * coalesce((select o.option_value::float from pg_catalog.pg_options_to_table(c.reloptions) as o where o.option_name = 'autovacuum_vacuum_scale_factor'),
                    current_setting('autovacuum_vacuum_scale_factor')::float) as threshold
    from pg_catalog.pg_class as c
    left join pg_catalog.pg_stat_user_tables as s on s.relid = c.oid
   where c.relnamespace = 'pawl'::regnamespace
     and c.relkind = 'r'
)
select 'server' as scope, null::text as table_name, null::bigint as dead_rows
 where not current_setting('autovacuum')::boolean
 union all
select 'table', h.relname, null
  from hot as h
 where h.enabled in ('off', 'false', 'no', '0')
 union all
select 'rows', h.relname, h.n_dead_tup
  from hot as h
 where h.n_dead_tup > 3 * h.threshold + $1
