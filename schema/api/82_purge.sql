-- Counts of what the purges would delete, and the audit record of a purge by hand.

-- _purge_cut_off checks the arguments of a purge and returns its cut-off. Later rows stay.
create or replace function pawl_v1._purge_cut_off(p_table text, p_options jsonb)
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_options(p_options, '{consumer,older_than_ms,unreported}');
  if (p_table in ('command', 'job_key', 'step', 'inbox', 'delivery', 'replay', 'fence')) is not true then
    raise exception 'no table of that name is purged: %', coalesce(p_table, 'null')
      using errcode = 'P4004', hint = 'known here: command, job_key, step, inbox, delivery, replay, fence';
  end if;
  if p_table in ('inbox', 'delivery') then
    perform pawl_v1._check_scope('consumer', p_options ->> 'consumer');
  end if;
  return pawl_v1._before(pawl_v1._int_option(p_options, 'older_than_ms',
           case when p_table in ('command', 'job_key', 'step') then 86400000 end, 0, 315360000000));
end
$$;

-- purge_count counts the rows of a table that its purge would delete now. It reads the whole table.
--
-- p_table: 'command', 'job_key', 'step', 'inbox', 'delivery', 'replay' or 'fence'. Options:
-- consumer (required for inbox and delivery). older_than_ms (required for inbox, delivery, replay
-- and fence; otherwise as of the purge). unreported, as of inbox_purge.
-- Outcome: 'counted'. due: number of rows. Errors: P4004, the table or an option, or a consumer
-- that remembers longer or never reported: see inbox_purge.
create or replace function pawl_v1.purge_count(p_table text, p_options jsonb default '{}')
returns table (outcome text, due bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  v_consumer text := p_options ->> 'consumer';
  v_before   timestamptz := pawl_v1._purge_cut_off(p_table, p_options);
  v_due      bigint;
begin
  case p_table
    when 'command' then
      select count(*)
        into v_due
        from pawl.command as c
       where c.created_at < v_before
         and c.expires_at < clock_timestamp()
         and c.status in ('succeeded', 'failed_final');
    when 'job_key' then
      select count(*)
        into v_due
        from pawl.job_key as k
       where k.created_at < v_before
         and k.expires_at < clock_timestamp()
         and not exists (select from pawl.job as j where j.id = k.job_id);
    when 'step' then
      select count(*)
        into v_due
        from pawl.step as e
       where e.created_at < v_before
         and e.expires_at < clock_timestamp()
         and (e.status in ('succeeded', 'failed_final')
              or e.status = 'planned' and (pawl_v1._step_doubts(e)).calls = 0)
         and not exists (select from pawl.job as j where j.id = e.job_id)
         and not exists (
               select
                 from pawl.inbox as i
                 join pawl.job as j on j.id = i.job_id
                where i.consumer = substr(e.scope, length('inbox/') + 1)
                  and i.key = e.key
                  and e.scope like 'inbox/%')
         and not exists (
               select
                 from pawl.command as c
                where c.scope = substr(e.scope, length('command/') + 1)
                  and c.key = e.key
                  and e.scope like 'command/%'
                  and c.status not in ('succeeded', 'failed_final'));
    when 'inbox' then
      perform pawl_v1._check_promise(v_consumer, (p_options ->> 'older_than_ms')::bigint, coalesce((p_options ->> 'unreported')::boolean, false));
      select count(*)
        into v_due
        from pawl.inbox as i
       where i.received_at < v_before
         and i.consumer = v_consumer
         and not exists (select from pawl.job as j where j.id = i.job_id);
    when 'delivery' then
      select count(*)
        into v_due
        from pawl.delivery as d
       where d.received_at < v_before
         and d.consumer = v_consumer;
    when 'replay' then
      select count(*)
        into v_due
        from pawl.replay as r
       where r.updated_at < v_before
         and not exists (select from pawl.command as c where c.scope = r.scope);
    when 'fence' then
      select count(*)
        into v_due
        from pawl.fence as f
       where f.seen_at < v_before;
  end case;
  return query
  select 'counted', v_due, '{}'::jsonb;
end
$$;

-- purge_audit records a purge by hand in pawl.audit, with verb purge. A purge runs in many
-- transactions, so its caller counts the rows and calls this once at the end, also if the purge
-- stopped early. Purges by consumers and workers are not recorded.
--
-- p_rows: number of deleted rows. Null only checks the arguments and the right to record, before
-- the first row is deleted. p_table, options: as of purge_count. In the record, before has the
-- options, table, cut_off (no later row was deleted) and rows; after is null.
-- Outcomes: 'recorded', or 'checked' (p_rows is null; nothing is written). Errors: P4000, P4004.
create or replace function pawl_v1.purge_audit(
  p_table   text,
  p_rows    bigint,
  p_actor   text,
  p_reason  text,
  p_options jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_cut_off timestamptz := pawl_v1._purge_cut_off(p_table, p_options);
begin
  perform pawl_v1._check_by(p_actor, p_reason);
  if p_rows is null then
    return query
    select 'checked', '{}'::jsonb;
    return;
  end if;
  perform pawl_v1._check_int('rows', p_rows, 0, 9223372036854775807);
  insert into pawl.audit (actor, verb, target, reason, before)
  values (p_actor, 'purge', pawl_v1._audit_target('table', variadic array_remove(array[p_table, p_options ->> 'consumer'], null)), p_reason,
          p_options || jsonb_build_object('table', p_table, 'cut_off', v_cut_off, 'rows', p_rows));
  return query
  select 'recorded', '{}'::jsonb;
end
$$;
