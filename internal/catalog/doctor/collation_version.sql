-- Whether the library of this database's collation has changed. Runs on PostgreSQL 15 or newer.
select quote_ident(d.datname) as target, d.datcollversion as made_by, pg_catalog.pg_database_collation_actual_version(d.oid) as now_at
  from pg_catalog.pg_database as d
 where d.datname = current_database()
   and d.datcollversion is distinct from pg_catalog.pg_database_collation_actual_version(d.oid)
