-- 55P03 says that a lock was not had in time, and not which: that on a row, which another transaction works on, or that on the whole
-- table, which CREATE INDEX, REINDEX, VACUUM FULL and ALTER TABLE take. The first is about one message, the second about all.

-- _table_locked returns a table of these that nothing can be written to now, or null.
create or replace function pawl_v1._table_locked(p_tables regclass[])
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
  v_table regclass;
begin
  foreach v_table in array p_tables loop
    begin
      execute format('lock table %s in row exclusive mode', v_table);
    exception
      when insufficient_privilege then
        null; -- the caller does not write to it
      when lock_not_available then
        return v_table;
    end;
  end loop;
  return null;
end
$$;
