-- Invalid indexes.
select c.relname as name
  from pg_catalog.pg_index as i
  join pg_catalog.pg_class as c on c.oid = i.indexrelid
 where c.relnamespace = 'pawl'::regnamespace
   and not (i.indisvalid and i.indisready)
