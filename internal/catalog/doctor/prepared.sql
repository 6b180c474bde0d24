-- Prepared transactions of this database.
select p.gid, p.owner, p.prepared as since
  from pg_catalog.pg_prepared_xacts as p
 where p.database = current_database()
