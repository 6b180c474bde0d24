-- What the purges would delete, counted.

-- Counts the rows of a table that its purge would delete now. Reads the whole table.
--
-- p_table: 'command', 'job_key', 'effect', 'inbox', 'delivery', 'replay' or 'fence'. options: consumer (of inbox and delivery, required there),
-- older_than_ms (required of inbox, delivery, replay and fence; of the others as of their purge), unreported (as of inbox_purge).
-- outcome 'counted'. P4004: the table or an option; or an inbox whose consumer remembers for longer, or never reported: see inbox_purge.
create or replace function pawl_v1.purge_count(p_table text, p_options jsonb default '{}')
returns table (outcome text, due bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  v_consumer text := p_options ->> 'consumer';
  v_before   timestamptz;
  v_due      bigint;
begin
  perform pawl_v1._check_options(p_options, '{consumer,older_than_ms,unreported}');
  if p_table in ('inbox', 'delivery') then
    perform pawl_v1._check_scope('consumer', v_consumer);
  end if;
  v_before := pawl_v1._before(pawl_v1._int_option(p_options, 'older_than_ms',
                case when p_table in ('command', 'job_key', 'effect') then 86400000 end, 0, 315360000000));
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
    when 'effect' then
      select count(*)
        into v_due
        from pawl.effect as e
       where e.created_at < v_before
         and e.expires_at < clock_timestamp()
         and (e.status in ('succeeded', 'failed_final')
              or e.status = 'planned' and e.job_id is not null and (pawl_v1._effect_doubts(e)).calls = 0)
         and not exists (select from pawl.job as j where j.id = e.job_id)
         and not exists (
               select
                 from pawl.inbox as i
                 join pawl.job as j on j.id = i.job_id
                where i.consumer = substr(e.scope, length('inbox/') + 1)
                  and i.message_id = e.key
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
    else
      raise exception 'no table of that name is purged: %', coalesce(p_table, 'null')
        using errcode = 'P4004', hint = 'known here: command, job_key, effect, inbox, delivery, replay, fence';
  end case;
  return query
  select 'counted', v_due, '{}'::jsonb;
end
$$;
