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

-- purge_count counts the rows that the purge of a table would delete now. p_table is 'command',
-- 'job_key', 'step', 'inbox', 'delivery', 'replay' or 'fence'. It reads the whole table.
--
-- Outcomes:
--   counted  The column due is the number of rows.
--
-- Errors:
--   P4004  The table or an option, or the age is shorter than a consumer remembers: see
--          inbox_purge.
--   P4000  The consumer's name.
--
-- Options:
--   consumer       (text, required of inbox and delivery) Its deliveries are counted.
--   older_than_ms  (0 to 10 years, required of inbox, delivery, replay and fence; else as of the
--                  purge) Younger rows do not count.
--   unreported     (boolean) As of inbox_purge.
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

-- purge_audit records a purge that you run by hand: one row in pawl.audit, with the verb 'purge'
-- and the target 'table NAME' or 'table NAME CONSUMER'. A purge runs in many transactions. Call
-- purge_audit with p_rows null before the first one. Call it with the count when the purge has
-- ended, also if it has stopped early. In Go, ops.Purge does this; on the command line, 'pawl
-- purge'. Consumers and workers do not record what they purge by themselves.
--
-- p_table and the options are those of purge_count. In the record, 'before' has the options,
-- 'table', 'cut_off' (no younger row was deleted) and 'rows'; 'after' is null.
--
-- Outcomes:
--   recorded  Done.
--   checked   p_rows is null: the arguments and your right to record are in order. No row is
--             written.
--
-- Errors:
--   P4000, P4004  An argument or an option.
--
-- Options:
--   consumer, older_than_ms, unreported
--             As of purge_count.
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
