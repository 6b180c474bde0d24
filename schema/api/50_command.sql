-- Commands: a caller asks, once, and is told the same answer each time.
--
--   one transaction                        leased
--
--   command_open                           command_claim
--        │ the key is locked,                   │
--        │ nothing is written              processing ──── lease over ────┬── repeatable: processing again, under a new fence
--    your rows                              │   │   │                     └── else: unknown ── the attempt's own end, or command_settle
--        │                     command_fail │   │   │ command_fail, final
--   command_close           failed_retryable    │   failed_final
--        │                   (ask it again)     │ command_succeed
--    succeeded                              succeeded
--
-- One transaction: the key is held by an advisory lock from command_open to the end of the transaction, and the row is written
-- once, as it ends, with your rows. Behind the lock stands the primary key: of two transactions that both ended one key the second
-- is refused, with all its rows. Leased: the claim commits alone, and others see that somebody works on it, until when. Every later
-- word names the fence, of both forms.

-- Opens a command, in the transaction that will do the work and end it: call it first. It locks the key until that transaction ends,
-- looks, and draws a fence. Nothing is written, so a transaction that dies leaves nothing.
--
-- outcome 'new_claim', 'retryable_failure' (the attempt before failed): the key is yours. Do the work, then command_close with fence and
-- xact as they are; or roll back, and command_fail with the fence. Until then COMMIT fails with 2D000 and rolls back.
-- outcome 'replay_success', 'final_failure': the stored answer; do nothing but commit before you pass it on. detail.unproved:
-- COMMIT waits for the synchronous standbys.
-- outcome 'processing_active': somebody else is at it; ask again after retry_after_ms. The other columns may be null.
-- outcome 'unknown': an attempt may have taken effect and did not say. Commit; see command_settle.
-- outcome 'mismatch': the key came before with another payload (detail: stored_hash, given_hash).
--
-- p_idle_ms: the server ends the transaction after so long a silence (idle_in_transaction_session_timeout); null leaves the
-- session's own limit. options: wait_ms (default 0: how long to wait for another transaction that has the key), raise boolean
-- (what is not yours and no replay is raised: P4002, P4029, P4030, P4031).
create or replace function pawl_v1.command_open(p_scope text, p_key text, p_hash bytea, p_idle_ms int default null, p_options jsonb default '{}')
returns table (
  outcome text, fence bigint, xact text, attempts int, retry_after_ms int, response_status int, response_headers jsonb,
  response_body bytea, result bytea, result_ref_type text, result_ref_id text, failure_code text, failure_message text,
  created_at timestamptz, expires_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_mine boolean;
  v_hash bytea;
  v_idle text;
begin
  -- Helpers are called only to say what is wrong.
  if (octet_length(p_scope) between 1 and 255 and octet_length(p_key) between 1 and 255 and octet_length(p_hash) = 32
      and p_options - '{wait_ms,raise}'::text[] = '{}') is not true
  then
    perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
            pawl_v1._check_options(p_options, '{wait_ms,raise}');
  end if;
  if p_idle_ms is not null then
    v_idle := set_config('idle_in_transaction_session_timeout', p_idle_ms::text, true); -- PERFORM would run a query
  end if;

  -- First the lock, then the look, each with a snapshot of its own: who had the lock before has committed what is seen.
  v_mine := pg_try_advisory_xact_lock(pawl_v1._command_lock(p_scope, p_key));
  if not v_mine and p_options ? 'wait_ms' then
    v_mine := pawl_v1._command_wait(p_scope, p_key, pawl_v1._int_option(p_options, 'wait_ms', 0, 0, 600000)::int);
  end if;
  select c.hash
    into v_hash
    from pawl.command as c
   where c.scope = p_scope
     and c.key = p_key;
  detail := '{}';
  if not found and v_mine then
    outcome := 'new_claim';
    attempts := 1;
    fence := nextval('pawl.fence_seq');
    xact := pawl_v1._command_xact(fence);
    execute 'declare pawl_command_' || fence || ' no scroll cursor with hold for select pawl_v1._command_unended(' || fence || ')'; -- see there
    return next;
    return;
  end if;

  if v_hash <> p_hash then
    outcome := 'mismatch';
  else
    -- A wide row is dear, and a new key has none: only now. By another statement it may be another row.
    select case c.status
             when 'succeeded' then 'replay_success'
             when 'failed_final' then 'final_failure'
             when 'processing' then case when c.lease_expires_at > clock_timestamp() then 'processing_active' end
           end, c.fence,
           c.attempts, c.response_status, c.response_headers, c.response_body, c.result, c.result_ref_type, c.result_ref_id,
           c.failure_code, c.failure_message, c.created_at, c.expires_at
      into outcome, fence, attempts, response_status, response_headers, response_body, result, result_ref_type, result_ref_id,
           failure_code, failure_message, created_at, expires_at
      from pawl.command as c
     where c.scope = p_scope
       and c.key = p_key
       and c.hash = p_hash;
    if outcome is null then
      select r.outcome, r.fence, r.attempts, r.failure_code, r.failure_message
        into outcome, fence, attempts, failure_code, failure_message
        from pawl_v1._command_reopen(p_scope, p_key, p_hash, v_mine) as r;
    end if;
  end if;
  if (p_options ->> 'raise')::boolean then
    perform pawl_v1._command_raise(outcome, c, p_hash)
       from (select) as one
       left join pawl.command as c on c.scope = p_scope and c.key = p_key;
  end if;
  case outcome
    when 'retryable_failure' then
      xact := pawl_v1._command_xact(fence);
      execute 'declare pawl_command_' || fence || ' no scroll cursor with hold for select pawl_v1._command_unended(' || fence || ')';
    when 'mismatch' then
      detail := pawl_v1._command_mismatch(v_hash, p_hash);
    when 'processing_active' then
      retry_after_ms := 1000;
    else
      if current_setting('synchronous_standby_names') <> '' or pg_is_in_recovery() then -- a standby raises 25006
        detail := pawl_v1._unproved();
      end if;
  end case;
  return next;
end
$$;

-- What was opened in this transaction, under this fence.
create or replace function pawl_v1._command_xact(p_fence bigint)
returns text
language sql
return pg_current_xact_id()::text || ' ' || p_fence;

-- Makes COMMIT fail while a command is open. command_open declares a cursor WITH HOLD over it; COMMIT runs the query of such a cursor, since
-- its rows are to outlive the transaction, and an error of the query rolls all back. command_close and command_fail close the cursor.
-- PREPARE TRANSACTION refuses such a cursor by itself (0A000). A rollback drops it.
create or replace function pawl_v1._command_unended(p_fence bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'the command with fence % has no end', p_fence
    using errcode = '2D000',
          hint = 'call command_close or command_fail before COMMIT, or roll back; code that is lent the transaction of a command must not end it';
end
$$;

-- The answer of a command that is no final one: the row is looked at again, under its lock, if the key is ours.
create or replace function pawl_v1._command_reopen(p_scope text, p_key text, p_hash bytea, p_mine boolean)
returns table (outcome text, fence bigint, attempts int, failure_code text, failure_message text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_seen    pawl.command;
  v_outcome text := 'processing_active';
begin
  if p_mine then
    -- Locked: an attempt is ending it.
    select c.*
      into v_seen
      from pawl.command as c
     where c.scope = p_scope
       and c.key = p_key
       for update skip locked;
    if found then
      v_outcome := coalesce(pawl_v1._command_standing(v_seen, p_hash), case v_seen.status when 'failed_retryable' then 'retryable_failure' else 'unknown' end);
    end if;
  end if;
  if v_outcome = 'retryable_failure' then -- stays as it is, locked, until command_close or command_fail
    v_seen.fence := nextval('pawl.fence_seq');
    v_seen.attempts := v_seen.attempts + 1;
  elsif v_outcome = 'unknown' and v_seen.status = 'processing' then -- its lease is over, and who knows how far it came
    v_seen := pawl_v1._command_take(v_seen, 'unknown', '{}');
  end if;
  return query
  select v_outcome, v_seen.fence, v_seen.attempts::int, v_seen.failure_code::text, v_seen.failure_message::text;
end
$$;

-- The counterpart of command_open, as the last statement before COMMIT: writes the command, ended well, with its answer. Its memory
-- counts from now. p_fence, p_xact: what command_open answered.
--
-- options: retention_ms (default 24 h), response_status (100 to 999), response_headers object, result_ref_type, result_ref_id (what
-- was made).
-- outcome 'succeeded'. 25000: the work has rolled back the transaction in which the command was opened, and what it committed behind that
-- is durable; tell command_fail with option unknown. P4020: a newer attempt owns it, or it has ended. Both abort the transaction.
create or replace function pawl_v1.command_close(
  p_scope         text,
  p_key           text,
  p_hash          bytea,
  p_fence         bigint,
  p_xact          text,
  p_result        bytea default null,
  p_response_body bytea default null,
  p_options       jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_open refcursor := 'pawl_command_' || p_fence;
begin
  if (p_xact = pg_current_xact_id_if_assigned()::text || ' ' || p_fence) is not true then
    raise exception 'the transaction in which command % of scope % was opened has ended', p_key, p_scope
      using errcode = '25000', hint = 'code that is lent the transaction of a command must not commit or roll back';
  end if;
  if (p_options = '{}' and greatest(octet_length(p_result), octet_length(p_response_body), 0) <= 4194304) is not true then
    perform pawl_v1._command_check_answer(p_result, p_response_body, p_options,
              '{retention_ms,response_status,response_headers,result_ref_type,result_ref_id}');
  end if;
  insert into pawl.command as c (scope, key, hash, fence, expires_at, status, result, response_body, response_status,
                                 response_headers, result_ref_type, result_ref_id)
  values (p_scope, p_key, p_hash, p_fence, pawl_v1._command_memory(p_options), 'succeeded', p_result, p_response_body,
          case when p_options ? 'response_status' then pawl_v1._int_option(p_options, 'response_status', null, 100, 999) end,
          nullif(p_options -> 'response_headers', 'null'), p_options ->> 'result_ref_type', p_options ->> 'result_ref_id')
  on conflict do nothing;
  if not found then
    -- Over a failure that may be tried again: its row is locked since command_open.
    update pawl.command as c
       set status = 'succeeded',
           fence = p_fence,
           attempts = c.attempts + 1,
           updated_at = clock_timestamp(),
           expires_at = pawl_v1._command_memory(p_options),
           result = p_result,
           response_status = case
             when p_options ? 'response_status' then pawl_v1._int_option(p_options, 'response_status', null, 100, 999)
           end,
           response_headers = nullif(p_options -> 'response_headers', 'null'),
           response_body = p_response_body,
           result_ref_type = p_options ->> 'result_ref_type',
           result_ref_id = p_options ->> 'result_ref_id',
           failure_code = null,
           failure_message = null
     where c.scope = p_scope
       and c.key = p_key
       and c.hash = p_hash
       and c.status = 'failed_retryable'
       and c.fence < p_fence;
    if not found then
      perform pawl_v1._command_refuse(p_scope, p_key, p_fence);
    end if;
  end if;
  begin
    close v_open; -- COMMIT may succeed from here on
  exception
    when invalid_cursor_name then -- the work has said CLOSE ALL
      null;
  end;
  outcome := 'succeeded';
  detail := '{}';
  return next;
end
$$;

create or replace function pawl_v1._command_check_answer(p_result bytea, p_response_body bytea, p_options jsonb, p_known text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
begin
  perform pawl_v1._check_options(p_options, p_known), pawl_v1._check_headers(p_options -> 'response_headers'),
          pawl_v1._check_int('the length of the result', coalesce(octet_length(p_result), 0), 0, 4194304),
          pawl_v1._check_int('the length of the response', coalesce(octet_length(p_response_body), 0), 0, 4194304);
end
$$;

-- Claims a key. A finished command is answered from its row by a plain read; claims of one key go one at a time.
--
-- outcome 'new_claim', 'retryable_failure' (the attempt before failed), 'processing_stale' (its lease was over, and this claim
-- says repeatable): you hold it. Do the work, then command_succeed or command_fail with this fence.
-- outcome 'replay_success', 'final_failure': the stored answer; do nothing but commit before you pass it on. detail.unproved:
-- COMMIT waits for the synchronous standbys.
-- outcome 'processing_active': somebody else holds it, nothing changed; ask again after retry_after_ms. Also when another
-- transaction is claiming or ending it right now, in which case the other columns may be null. detail.claimed_by: who.
-- outcome 'unknown': the attempt before may have taken effect and did not say. Nobody holds it; see command_settle.
-- outcome 'mismatch': the key came before with another payload (detail: stored_hash, given_hash). Nothing changed.
-- 40001: restart the transaction.
--
-- options: lease_ms (default 300000), wait_ms (default 0: how long to wait for the transaction of another claim), retention_ms
-- (default 24 h: memory of a finished command), repeatable boolean (running the handler again is safe: all it writes is fenced),
-- claimed_by text (for people), raise boolean (processing_active, final_failure, unknown and mismatch are raised as P4029, P4030,
-- P4031 and P4002).
create or replace function pawl_v1.command_claim(p_scope text, p_key text, p_hash bytea, p_options jsonb default '{}')
returns table (
  outcome text, fence bigint, attempts int, lease_expires_at timestamptz, retry_after_ms int, response_status int,
  response_headers jsonb, response_body bytea, result bytea, result_ref_type text, result_ref_id text, failure_code text,
  failure_message text, created_at timestamptz, expires_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_seen    pawl.command;
  v_outcome text;
  v_wait    int;
  v_locked  boolean := false;
begin
  -- Helpers cost as much as the claim itself, so they are called only to say what is wrong.
  if (octet_length(p_scope) between 1 and 255 and octet_length(p_key) between 1 and 255 and octet_length(p_hash) = 32
      and p_options - '{lease_ms,wait_ms,retention_ms,repeatable,claimed_by,raise}'::text[] = '{}') is not true
  then
    perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
            pawl_v1._check_options(p_options, '{lease_ms,wait_ms,retention_ms,repeatable,claimed_by,raise}');
  end if;

  for v_try in 1..4 loop
    -- Most answers come from here: no lock, no write.
    select c.*
      into v_seen
      from pawl.command as c
     where c.scope = p_scope
       and c.key = p_key;
    if found then
      v_outcome := pawl_v1._command_standing(v_seen, p_hash);
      exit when v_outcome is not null;
    end if;

    -- Claims of one key go one at a time: those that ask only learn that it is taken, instead of waiting in the INSERT; and
    -- fences are drawn in the order in which the key is held.
    if not v_locked then
      v_locked := pg_try_advisory_xact_lock(pawl_v1._command_lock(p_scope, p_key));
      if not v_locked then
        v_wait := pawl_v1._int_option(p_options, 'wait_ms', 0, 0, 600000);
        v_locked := pawl_v1._command_wait(p_scope, p_key, v_wait);
        continue when v_locked; -- what was waited for may have ended it
        v_outcome := 'processing_active';
        exit;
      end if;
    end if;

    if v_seen.key is null then
      insert into pawl.command as c (scope, key, hash, claimed_by, lease_expires_at, expires_at)
      values (p_scope, p_key, p_hash, p_options ->> 'claimed_by', pawl_v1._command_lease(p_options), pawl_v1._command_memory(p_options))
      on conflict do nothing
      returning c.*
           into v_seen;
      if found then
        v_outcome := 'new_claim';
        exit;
      end if;
      continue;
    end if;

    -- Locked: an attempt is ending it, or it is being purged.
    select c.*
      into v_seen
      from pawl.command as c
     where c.scope = p_scope
       and c.key = p_key
       for update skip locked;
    if not found then
      v_outcome := 'processing_active';
      exit;
    end if;
    v_outcome := pawl_v1._command_standing(v_seen, p_hash);
    if v_outcome is null then
      -- Whether an attempt that fell silent took effect, nobody knows: it runs again only if the claim says that this is safe.
      v_outcome := case
        when v_seen.status = 'failed_retryable' then 'retryable_failure'
        when (p_options ->> 'repeatable')::boolean then 'processing_stale'
        else 'unknown'
      end;
      v_seen := pawl_v1._command_take(v_seen, v_outcome, p_options);
    end if;
    exit;
  end loop;

  if v_outcome is null then
    raise exception 'command % of scope % keeps appearing and disappearing', p_key, p_scope
      using errcode = '40001', hint = 'restart the transaction';
  end if;
  if (p_options ->> 'raise')::boolean then
    perform pawl_v1._command_raise(v_outcome, v_seen, p_hash);
  end if;
  if v_outcome = 'mismatch' then
    return query
    select v_outcome, null::bigint, null::int, null::timestamptz, null::int, null::int, null::jsonb, null::bytea, null::bytea, null::text,
           null::text, null::text, null::text, null::timestamptz, null::timestamptz, pawl_v1._command_mismatch(v_seen.hash, p_hash);
    return;
  end if;
  return query
  select v_outcome, v_seen.fence, v_seen.attempts::int, v_seen.lease_expires_at,
         case v_outcome when 'processing_active' then 1000 end,
         v_seen.response_status::int, v_seen.response_headers, v_seen.response_body::bytea, v_seen.result::bytea,
         v_seen.result_ref_type::text, v_seen.result_ref_id::text, v_seen.failure_code::text, v_seen.failure_message::text,
         v_seen.created_at, v_seen.expires_at,
         case
           when v_outcome = 'processing_active' and v_seen.claimed_by is not null
           then jsonb_build_object('claimed_by', v_seen.claimed_by)
           when v_outcome in ('replay_success', 'final_failure', 'unknown') and current_setting('synchronous_standby_names') <> ''
           then pawl_v1._unproved()
           else '{}'
         end;
end
$$;

-- Says that the row has a status that a later version knows.
create or replace function pawl_v1._command_misfit(p_seen pawl.command)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'key % of scope % is %, which this version does not know', p_seen.key, p_seen.scope, p_seen.status
    using errcode = 'P4099';
end
$$;

-- The detail of a mismatch. Like any answer that was only read, it waits for replication.
create or replace function pawl_v1._command_mismatch(p_stored bytea, p_given bytea)
returns jsonb
language sql
return jsonb_build_object('stored_hash', encode(p_stored, 'hex'), 'given_hash', encode(p_given, 'hex'))
  || case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unproved() end;

-- What a row answers to whoever claims its key, or null: it may be claimed. The payload is looked at first: a caller who
-- changes it is told so while the first one is still being worked on.
create or replace function pawl_v1._command_standing(p_seen pawl.command, p_hash bytea)
returns text
language sql
return case
  when p_seen.key is null then null
  when p_seen.hash <> p_hash then 'mismatch'
  when p_seen.status = 'succeeded' then 'replay_success'
  when p_seen.status = 'failed_final' then 'final_failure'
  when p_seen.status = 'unknown' then 'unknown'
  when p_seen.status = 'failed_retryable' then null
  when p_seen.status <> 'processing' then pawl_v1._command_misfit(p_seen)
  when p_seen.lease_expires_at > clock_timestamp() then 'processing_active'
end;

create or replace function pawl_v1._command_lock(p_scope text, p_key text)
returns bigint
language sql
immutable
return hashtextextended(octet_length(p_scope)::text || ':' || p_scope || p_key, 1885435758); -- int || text is stable: never inlined

-- Waits for the lock of a key and reports whether it came.
create or replace function pawl_v1._command_wait(p_scope text, p_key text, p_ms int)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  if p_ms = 0 then -- which lock_timeout takes for ever
    return false;
  end if;
  perform set_config('lock_timeout', p_ms::text, true);
  perform pg_advisory_xact_lock(pawl_v1._command_lock(p_scope, p_key));
  return true;
exception
  when lock_not_available then
    return false;
end
$$;

create or replace function pawl_v1._command_lease(p_options jsonb)
returns timestamptz
language sql
return clock_timestamp() + pawl_v1._ms_option(p_options, 'lease_ms', 300000, 1000, 43200000);

create or replace function pawl_v1._command_memory(p_options jsonb)
returns timestamptz
language sql
return clock_timestamp() + pawl_v1._ms_option(p_options, 'retention_ms', 86400000, 1000, 315360000000);

-- Takes over what nobody holds, or makes it unknown. The row is locked since its status was read.
create or replace function pawl_v1._command_take(p_seen pawl.command, p_outcome text, p_options jsonb)
returns pawl.command
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_taken pawl.command;
begin
  if p_outcome = 'unknown' then
    update pawl.command as c
       set status = 'unknown',
           updated_at = clock_timestamp()
     where c.scope = p_seen.scope
       and c.key = p_seen.key
    returning c.*
         into v_taken;
    return v_taken;
  end if;
  update pawl.command as c
     set status = 'processing',
         fence = nextval('pawl.fence_seq'),
         attempts = c.attempts + 1,
         claimed_by = p_options ->> 'claimed_by',
         lease_expires_at = pawl_v1._command_lease(p_options),
         updated_at = clock_timestamp()
   where c.scope = p_seen.scope
     and c.key = p_seen.key
  returning c.*
       into v_taken;
  return v_taken;
end
$$;

-- Raises what the caller asked to be raised; returns for the other outcomes.
create or replace function pawl_v1._command_raise(p_outcome text, p_seen pawl.command, p_hash bytea)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  case p_outcome
    when 'mismatch' then
      raise exception 'key % of scope % came before with a different payload', p_seen.key, p_seen.scope
        using errcode = 'P4002',
              detail = json_build_object('stored_hash', encode(p_seen.hash, 'hex'), 'given_hash', encode(p_hash, 'hex')),
              hint = 'use a new key for a new intent, or fix the caller that changes its payload between retries';
    when 'processing_active' then
      raise exception 'the command is being processed now'
        using errcode = 'P4029', detail = json_build_object('retry_after', 1), hint = 'retry after retry_after seconds';
    when 'final_failure' then
      raise exception 'command % of scope % failed for good: %', p_seen.key, p_seen.scope, p_seen.failure_message
        using errcode = 'P4030',
              detail = json_build_object('code', p_seen.failure_code, 'error', p_seen.failure_message, 'attempts', p_seen.attempts),
              hint = 'a retry needs a new key';
    when 'unknown' then
      raise exception 'command % of scope % may have taken effect', p_seen.key, p_seen.scope
        using errcode = 'P4031', hint = 'find out, then settle it with command_settle';
    else
      null;
  end case;
end
$$;

-- Says why an end or a renewal is refused. DETAIL: absent, rolled_back (the claim's transaction did not commit), superseded (a
-- newer attempt), or the status in which this very attempt ended.
create or replace function pawl_v1._command_refuse(p_scope text, p_key text, p_fence bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_seen   pawl.command;
  v_detail text;
begin
  select c.*
    into v_seen
    from pawl.command as c
   where c.scope = p_scope
     and c.key = p_key;
  v_detail := case
    when v_seen.key is null then 'absent'
    when v_seen.fence > p_fence then 'superseded'
    when v_seen.fence = p_fence then v_seen.status
    else 'rolled_back'
  end;
  raise exception 'command % of scope % is not held with fence %', p_key, p_scope, coalesce(p_fence::text, 'null')
    using errcode = 'P4020',
          detail = v_detail,
          hint = 'drop this attempt, and claim again to read the answer';
end
$$;

-- Locks a claimed command and proves the fence. Call it first in the transaction that will write and end it: a stale
-- attempt then stops before it writes, and nobody takes over while the transaction is open.
-- outcome 'held'. P4020: not the holder any more. 55P03: another transaction has the row; nothing is known yet.
create or replace function pawl_v1.command_hold(p_scope text, p_key text, p_fence bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_seen pawl.command;
begin
  select c.*
    into v_seen
    from pawl.command as c
   where c.scope = p_scope
     and c.key = p_key
     for update;
  if (v_seen.status in ('processing', 'unknown') and v_seen.fence = p_fence) is not true then
    perform pawl_v1._command_refuse(p_scope, p_key, p_fence);
  end if;
  return query
  select 'held', '{}'::jsonb;
end
$$;

-- Renews the lease; call it at a third of it. An attempt whose lease ran out, and whom nobody has replaced, is back.
-- options: lease_ms (default 300000). outcome 'renewed'. P4020: not the holder any more. 55P03 as of command_hold.
create or replace function pawl_v1.command_renew(p_scope text, p_key text, p_fence bigint, p_options jsonb default '{}')
returns table (outcome text, lease_expires_at timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_until timestamptz;
begin
  perform pawl_v1._check_options(p_options, '{lease_ms}');
  update pawl.command as c
     set status = 'processing',
         lease_expires_at = clock_timestamp()
           + pawl_v1._int_option(p_options, 'lease_ms', 300000, 1000, 43200000) * interval '1 millisecond',
         updated_at = clock_timestamp()
   where c.scope = p_scope
     and c.key = p_key
     and c.status in ('processing', 'unknown')
     and c.fence = p_fence
  returning c.lease_expires_at
       into v_until;
  if not found then
    perform pawl_v1._command_refuse(p_scope, p_key, p_fence);
  end if;
  return query
  select 'renewed', v_until, '{}'::jsonb;
end
$$;

-- Ends a command well and stores its answer, in the transaction that did the work. Its memory counts from now.
--
-- options: response_status (100 to 999), response_headers object, result_ref_type, result_ref_id (what was made).
-- outcome 'succeeded'. P4020: not the holder any more; DETAIL says why. It aborts the transaction, so that the work of such
-- an attempt is rolled back. It is never accepted twice.
create or replace function pawl_v1.command_succeed(
  p_scope         text,
  p_key           text,
  p_fence         bigint,
  p_result        bytea default null,
  p_response_body bytea default null,
  p_options       jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  perform pawl_v1._command_check_answer(p_result, p_response_body, p_options, '{response_status,response_headers,result_ref_type,result_ref_id}');
  update pawl.command as c
     set status = 'succeeded',
         lease_expires_at = null,
         updated_at = clock_timestamp(),
         expires_at = clock_timestamp() + (c.expires_at - c.created_at),
         result = p_result,
         response_status = case
           when p_options ? 'response_status' then pawl_v1._int_option(p_options, 'response_status', null, 100, 999)
         end,
         response_headers = nullif(p_options -> 'response_headers', 'null'),
         response_body = p_response_body,
         result_ref_type = p_options ->> 'result_ref_type',
         result_ref_id = p_options ->> 'result_ref_id',
         failure_code = null,
         failure_message = null
   where c.scope = p_scope
     and c.key = p_key
     and c.status in ('processing', 'unknown')
     and c.fence = p_fence;
  if not found then
    perform pawl_v1._command_refuse(p_scope, p_key, p_fence);
  end if;
  return query
  select 'succeeded', '{}'::jsonb;
end
$$;

-- Ends an attempt badly. In the transaction that opened the command, after rolling back to a savepoint behind command_open; or in one
-- of its own. If there is no row it is inserted, unless somebody else has the key by then: it waits for their end. Telling the same
-- failure twice is no error.
--
-- p_error: {"error": text, "code": text}. options: final boolean (the failure is the answer from now on), unknown boolean (the
-- attempt may have taken effect), retention_ms as of command_claim, for a row that is inserted.
-- outcome 'failed_retryable', 'failed_final' or 'unknown': what the row holds now. P4020: another attempt has the key, or it
-- has ended; nothing is written, claim again to read the answer.
create or replace function pawl_v1.command_fail(
  p_scope   text,
  p_key     text,
  p_fence   bigint,
  p_hash    bytea,
  p_error   jsonb,
  p_options jsonb default '{}'
)
returns table (outcome text, attempts int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_status text := case
    when (p_options ->> 'unknown')::boolean then 'unknown'
    when (p_options ->> 'final')::boolean then 'failed_final'
    else 'failed_retryable'
  end;
  v_seen   pawl.command;
  v_locked boolean := false;
  v_proof  jsonb := '{}';
  v_open   refcursor := 'pawl_command_' || p_fence;
begin
  perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
          pawl_v1._check_options(p_options, '{final,unknown,retention_ms}');
  perform pawl_v1._command_check_fence(p_fence);

  for v_try in 1..4 loop
    -- Held by this attempt; or its transaction was rolled back over an older failure, which is still the newest word.
    update pawl.command as c
       set status = v_status,
           fence = p_fence,
           attempts = c.attempts + case when c.fence < p_fence then 1 else 0 end,
           lease_expires_at = case v_status when 'unknown' then coalesce(c.lease_expires_at, clock_timestamp()) end,
           updated_at = clock_timestamp(),
           expires_at = case v_status when 'failed_final' then clock_timestamp() + (c.expires_at - c.created_at) else c.expires_at end,
           failure_code = pawl_v1._command_code(p_error),
           failure_message = left(p_error ->> 'error', 4000)
     where c.scope = p_scope
       and c.key = p_key
       and c.hash = p_hash
       and (c.status in ('processing', 'unknown') and c.fence = p_fence
            or c.status = 'failed_retryable' and c.fence < p_fence)
    returning c.*
         into v_seen;
    exit when found;

    -- Another transaction may have opened the key since, of which there is no row yet: its end decides.
    if not v_locked then
      perform pg_advisory_xact_lock(pawl_v1._command_lock(p_scope, p_key));
      v_locked := true;
      continue;
    end if;
    insert into pawl.command as c (scope, key, hash, fence, lease_expires_at, expires_at, status, failure_code, failure_message)
    values (p_scope, p_key, p_hash, p_fence, case v_status when 'unknown' then clock_timestamp() end,
            pawl_v1._command_memory(p_options), v_status, pawl_v1._command_code(p_error), left(p_error ->> 'error', 4000))
    on conflict do nothing
    returning c.*
         into v_seen;
    exit when found;

    select c.*
      into v_seen
      from pawl.command as c
     where c.scope = p_scope
       and c.key = p_key;
    if v_seen.fence = p_fence and v_seen.status in ('failed_retryable', 'failed_final') then -- told before
      if current_setting('synchronous_standby_names') <> '' then
        v_proof := pawl_v1._unproved();
      end if;
      exit;
    end if;
    if v_seen.key is not null and (v_seen.fence > p_fence or v_seen.status <> 'failed_retryable') then
      perform pawl_v1._command_refuse(p_scope, p_key, p_fence);
    end if;
    v_seen := null; -- it changed under our eyes: once more
  end loop;
  if v_seen.key is null then
    raise exception 'command % of scope % keeps changing', p_key, p_scope
      using errcode = '40001', hint = 'restart the transaction';
  end if;
  if exists (select from pg_cursors as o where o.name = v_open::text) then -- it was opened in this transaction, which may commit from here on
    close v_open;
  end if;
  return query
  select v_seen.status::text, v_seen.attempts::int, v_proof;
end
$$;

-- A fence that was never issued would lie above all that are to come.
create or replace function pawl_v1._command_check_fence(p_fence bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if (p_fence between 1 and coalesce(pg_sequence_last_value('pawl.fence_seq'), 0)) is not true then
    raise exception 'fence % was never issued', coalesce(p_fence::text, 'null')
      using errcode = 'P4004', hint = 'pass the fence that the claim returned';
  end if;
end
$$;

create or replace function pawl_v1._command_code(p_error jsonb)
returns text
language sql
immutable
return nullif(left(p_error ->> 'code', 60), '');
