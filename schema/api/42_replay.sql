-- Replaying a delivery by hand. A delivery that took effect does not run again.

-- _replay_look returns everything known of a delivery in one statement.
create or replace function pawl_v1._replay_look(p_consumer text, p_key text)
returns table (seen pawl.inbox, status text, kept pawl.delivery, forgotten boolean)
language sql
set search_path = pg_catalog, pg_temp
as $$
  select i, j.status::text, d,
         exists (select from pawl.audit as a
                  where a.target = pawl_v1._audit_target('inbox', p_consumer, p_key)
                    and a.verb = 'inbox_forget'
                    and a.at >= d.received_at)
    from (select p_consumer as consumer, p_key as key) as k
    left join pawl.inbox as i on i.consumer = k.consumer and i.key = k.key
    left join pawl.job as j on j.id = i.job_id
    left join pawl.delivery as d on d.consumer = k.consumer and d.key = k.key
$$;

-- _replay_store makes a job of a kept delivery, its owner from now on. Null: lost a race.
create or replace function pawl_v1._replay_store(p_seen pawl.inbox, p_kept pawl.delivery)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_how  jsonb := p_kept.stored_as;
  v_id   bigint := nextval('pawl.job_id_seq');
  v_lane bigint;
begin
  if v_how ? 'lane' then -- before the delivery, as in inbox_claim
    v_lane := (pawl_v1._lanes_enter(array[v_how ->> 'queue'], array[v_how ->> 'lane'], v_how))[1];
  end if;
  if p_seen.key is null then
    insert into pawl.inbox as i (consumer, key, hash, job_id)
    values (p_kept.consumer, p_kept.key, p_kept.hash, v_id)
    on conflict do nothing;
  else
    update pawl.inbox as i
       set job_id = v_id
     where i.consumer = p_seen.consumer
       and i.key = p_seen.key
       and i.processed_at is null
       and i.job_id = p_seen.job_id;
  end if;
  if not found then
    return null;
  end if;
  perform pawl_v1._job_insert(v_id, v_how ->> 'queue', v_how ->> 'kind', p_kept.payload,
    jsonb_strip_nulls(jsonb_build_object('max_attempts', v_how -> 'max_attempts'))
      || jsonb_build_object('headers', coalesce(v_how -> 'headers', '{}') || jsonb_build_object('attributes', coalesce(p_kept.headers, '{}'))),
    v_lane);
  return v_id;
end
$$;

-- inbox_replay retries a delivery that has not taken effect, by an operator. It goes through the
-- inbox like every other. Rows that took effect are not touched, and a message that its sender
-- sends meanwhile is a duplicate. It leaves a record in pawl.audit.
--
-- Outcomes:
--   replayed      Its job was a dead letter, cancelled, or waited for its next try. It is due now,
--                 as by job_retry, with a new fence; detail.status is its status before. Or its job
--                 was discarded, or the delivery forgotten (inbox_forget), and it was kept
--                 (delivery_keep): job_id is a new job.
--   would_replay  With dry_run: as replayed, but nothing changed.
--   refused       Nothing changed. detail.hint is the next step. The cases are listed below.
--   absent        The delivery is neither remembered nor kept.
--
-- Cases of refused:
--   it took effect      detail.processed_at. If the effect was taken back, forget the delivery
--                       first.
--   its job is in the way
--                       The job is being processed, or is in another state that retrying refuses:
--                       detail.job, detail.status.
--   no job and no copy  Its job was discarded, and the delivery was not kept.
--   not remembered      It was kept, and is no longer remembered, although no operator forgot it.
--                       It is unknown whether it took effect.
--
-- Errors:
--   55P03                An open transaction has had the job or the delivery for more than 2 s.
--   40001                The delivery changed at each of three looks. Restart the transaction.
--   P4000, P4001, P4004  An argument.
--
-- Options:
--   dry_run  (boolean) Report what would be done.
create or replace function pawl_v1.inbox_replay(
  p_consumer   text,
  p_key text,
  p_actor      text,
  p_reason     text,
  p_options    jsonb default '{}'
)
returns table (outcome text, job_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_dry   boolean := coalesce((p_options ->> 'dry_run')::boolean, false);
  v_look  record;
  v_job   bigint;
  v_retry record;
  v_was   jsonb := '{}';
  v_hint  text;
begin
  perform pawl_v1._check_options(p_options, '{dry_run}');
  perform pawl_v1._check_scope('consumer', p_consumer);
  perform pawl_v1._check_key('key', p_key);
  perform pawl_v1._check_by(p_actor, p_reason);
  for v_try in 1..3 loop
    select l.* into v_look from pawl_v1._replay_look(p_consumer, p_key) as l;
    v_job := (v_look.seen).job_id;
    v_hint := case
      when (v_look.seen).processed_at is not null then
        'it has taken effect; if that was taken back, forget the delivery first'
      when v_look.status is not null then null
      when (v_look.seen).key is null and (v_look.kept).key is null then null
      when (v_look.kept).stored_as is null or (v_look.kept).hash is null then
        'its job was discarded, and it was not kept as it came: have it sent again under another key, or forget it first'
      when (v_look.seen).key is null and not v_look.forgotten then
        'no operator forgot it: it is older than the memory window, and it is unknown whether it took effect'
    end;
    if v_hint is not null then
      return query
      select 'refused', v_job, jsonb_strip_nulls(jsonb_build_object('hint', v_hint, 'processed_at', (v_look.seen).processed_at));
      return;
    end if;
    if (v_look.seen).key is null and (v_look.kept).key is null then
      return query
      select 'absent', null::bigint, '{}'::jsonb;
      return;
    end if;

    if v_look.status is not null then
      if v_dry and v_look.status in ('dead_letter', 'cancelled', 'pending') then
        v_was := jsonb_build_object('status', v_look.status);
      else
        -- Lock the job only: an attempt locks it first. While it exists it owns the delivery.
        select r.* into v_retry from pawl_v1.job_retry(v_job, p_actor, p_reason,
          case when v_dry then '{"from": []}'::jsonb else '{}' end) as r;
        continue when v_retry.outcome = 'absent'; -- the job has ended since
        if v_retry.outcome <> 'retried' then
          return query
          select 'refused', v_job, v_retry.detail || jsonb_build_object('job', v_job);
          return;
        end if;
        v_was := jsonb_build_object('status', v_retry.detail -> 'status');
      end if;
    elsif v_dry then
      v_job := null; -- the former job is gone
    else
      v_job := pawl_v1._replay_store(v_look.seen, v_look.kept);
      continue when v_job is null;
    end if;
    if v_dry then
      return query
      select 'would_replay', v_job, v_was;
      return;
    end if;
    insert into pawl.audit (actor, verb, target, reason, before, after)
    values (p_actor, 'inbox_replay', pawl_v1._audit_target('inbox', p_consumer, p_key), p_reason,
            case when (v_look.seen).key is null then jsonb_build_object('kept_at', (v_look.kept).received_at) else to_jsonb(v_look.seen) end,
            jsonb_build_object('job', v_job) || v_was);
    return query
    select 'replayed', v_job, v_was;
    return;
  end loop;
  raise exception 'message % of consumer % changes all the time', p_key, p_consumer
    using errcode = '40001', hint = 'restart the transaction';
end
$$;
