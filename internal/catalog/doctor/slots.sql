-- Replication slots that hold back vacuum.
select s.slot_name as name, greatest(age(s.xmin), age(s.catalog_xmin)) as transactions, s.active
  from pg_catalog.pg_replication_slots as s
 where greatest(age(s.xmin), age(s.catalog_xmin)) > 1000000
    or not s.active and s.xmin is not null
