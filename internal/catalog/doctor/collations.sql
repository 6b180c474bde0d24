-- Indexed columns whose order depends on a library.
select t.relname as table_name, a.attname as column_name, quote_ident(l.collname) as collation_name
  from pg_catalog.pg_attribute as a
  join pg_catalog.pg_class as t on t.oid = a.attrelid and t.relkind = 'r' and t.relnamespace = 'pawl'::regnamespace
  join pg_catalog.pg_collation as l on l.oid = a.attcollation and l.collname not in ('C', 'POSIX')
 where exists (select from pg_catalog.pg_index as i where i.indrelid = t.oid and a.attnum = any (i.indkey))
