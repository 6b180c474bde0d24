-- Logical replication copies rows but not sequences. A fence issued twice lets an old attempt pass
-- as the newest, and lets a step whose outcome is unknown be called again.

-- _sequences_behind returns the sequences whose next number is already used in a table. If a table
-- has no index on the number, it reads p_rows rows of it, or all if p_rows is null. A sample is
-- enough, because after a copy nearly every row is ahead of the sequence.
create or replace function pawl_v1._sequences_behind(p_rows bigint default 1000)
returns table (sequence text, last_value bigint, held bigint)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select s.sequence, coalesce(pg_sequence_last_value(s.sequence::regclass), 0), s.held
    from (values
      ('pawl.worker_id_seq', (select max(w.id) from pawl.worker as w)),
      ('pawl.lane_id_seq', (select max(l.id) from pawl.lane as l)),
      ('pawl.job_id_seq', (select max(j.id) from pawl.job as j)),
      ('pawl.position_seq', (select max(j.position) from (select j.position from pawl.job as j where j.position is not null limit p_rows) as j)),
      ('pawl.fence_seq', greatest(
        (select max(c.fence) from (select c.fence from pawl.command as c limit p_rows) as c),
        (select max(greatest(e.fence, e.cleared)) from (select e.fence, e.cleared from pawl.step as e limit p_rows) as e),
        (select max(c.fence) from (select c.fence from pawl.step_call as c limit p_rows) as c),
        (select max(d.fence) from pawl.schedule as d)))) as s (sequence, held)
   where has_sequence_privilege(s.sequence, 'select, usage')
     and s.held > coalesce(pg_sequence_last_value(s.sequence::regclass), 0)
$$;
