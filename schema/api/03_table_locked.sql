-- SQLSTATE 55P03 does not tell which lock timed out. A row lock affects one message. A table lock
-- (CREATE INDEX, REINDEX, VACUUM FULL, ALTER TABLE) affects all.

-- _table_locked returns the first of p_tables that cannot be written to now, or null. It waits 50
-- ms a table.
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
        null; -- the caller does not write to this table
      when lock_not_available then
        return v_table;
    end;
  end loop;
  return null;
end
$$;
