-- A command takes effect once per key: each call with the key gets the same answer. There are two
-- forms.
--
--   one transaction                        leased
--
--   command_open                           command_claim
--        │ the key is locked,                   │
--        │ no row is written               processing ─ lease over ─┬─ repeatable: new fence
--    your rows                              │   │   │               └─ else: unknown
--        │                     command_fail │   │   │ command_fail, final
--   command_close           failed_retryable    │   failed_final
--        │                   (claim it again)   │ command_succeed
--    succeeded                              succeeded
--
-- In one transaction, your rows and the command's row commit together. An advisory lock holds the
-- key from command_open to the end of the transaction, and the row is written once, at the end. The
-- leased form is for work that must call other systems. Its claim commits alone, so others see the
-- attempt and the end of its lease; command_renew renews it. command_hold begins the transaction
-- that writes your rows and ends with command_succeed.
--
-- command_fail ends an attempt of both forms. An unknown command is ended by its late attempt or by
-- command_settle. In both forms every later call passes the fence.

-- command_open opens a command, in the transaction that does the work and ends it. Call it first.
-- It locks the key until that transaction ends, reads the command, and draws a fence. It writes no
-- row, so a transaction that dies leaves none.
--
-- If the transaction is idle for p_idle_ms milliseconds, the server ends it. Null keeps the limit
-- of the session.
--
-- While the first caller's transaction is uncommitted, others do not see its payload. A second
-- payload then gets 'processing_active', and 'mismatch' once the first has committed. After a
-- rollback without a recorded failure another payload may take the key. Above READ COMMITTED
-- command_close raises 40001 if another transaction ended the command since your snapshot. Restart
-- then.
--
-- The lock is PostgreSQL's advisory lock of the transaction. A ROLLBACK TO a savepoint from before
-- command_open releases it. The primary key is the second guard: of two transactions that end one
-- key, the second is refused with all its rows.
--
-- Your work cannot commit by itself before command_close. For this, command_open declares a cursor
-- WITH HOLD, 'pawl_command_' and the fence, whose query raises an error. COMMIT runs the query of
-- such a cursor. Do not close it yourself (CLOSE ALL), or command_close raises 34000. After a
-- ROLLBACK the writes of your work are not protected, so it must not send one.
--
-- Outcomes:
--   new_claim          The key is yours. Do the work, call command_close with fence and xact, and
--                      commit. Or roll back and call command_fail.
--   retryable_failure  The same. The attempt before failed, and its failure is in the row.
--   replay_success     It is done: the row has the stored answer. Commit before you pass it on.
--   final_failure      It failed for good: the row has the stored failure. Commit before you pass
--                      it on.
--   processing_active  Another attempt runs. While another transaction has the key open, the other
--                      columns may be null. Ask again after retry_after_ms.
--   unknown            An attempt may have taken effect and did not report it. No attempt holds it.
--                      Commit, and find out; then command_settle.
--   mismatch           The key came before with another payload, in any status. detail has
--                      stored_hash and given_hash. Use a new key, or fix the caller.
--
-- Errors:
--   P4002, P4029, P4030, P4031
--          With option 'raise': 'mismatch', 'processing_active', 'final_failure' (DETAIL holds the
--          failure), 'unknown'.
--   P4000, P4001, P4003, P4004
--          An argument.
--   2D000  Raised by COMMIT: the key is yours and the command has no end. All is rolled back. Call
--          command_close or command_fail first.
--   0A000  Raised by PREPARE TRANSACTION, for the same reason.
--   25006  The server is a standby. Ask the primary.
--
-- Options:
--   wait_ms  (0 to 10 min, default 0) How long to wait for another transaction that has the key. It
--            does not wait for leases.
--   raise    (boolean) Raise an error for outcomes with which the caller cannot continue.
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
  -- The check functions are called only if a test fails.
  if (octet_length(p_scope) between 1 and 255 and octet_length(p_key) between 1 and 255 and octet_length(p_hash) = 32
      and p_options - '{wait_ms,raise}'::text[] = '{}') is not true
  then
    perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
            pawl_v1._check_options(p_options, '{wait_ms,raise}');
  end if;
  if p_idle_ms is not null then
    -- PERFORM would run a query.
    v_idle := set_config('idle_in_transaction_session_timeout', p_idle_ms::text, true);
  end if;

  -- Lock, then read with a new snapshot, which sees what the previous holder of the lock committed.
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
    -- See _command_unended.
    execute 'declare pawl_command_' || fence || ' no scroll cursor with hold for select pawl_v1._command_unended(' || fence || ')';
    return next;
    return;
  end if;

  if v_hash <> p_hash then
    outcome := 'mismatch';
  else
    -- A wide row is expensive to read. It may be another row now: test the hash again.
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
      -- On a standby _unreplicated raises 25006.
      if current_setting('synchronous_standby_names') <> '' or pg_is_in_recovery() then
        detail := pawl_v1._unreplicated();
      end if;
  end case;
  return next;
end
$$;

-- _command_xact identifies the transaction and fence that opened a command.
create or replace function pawl_v1._command_xact(p_fence bigint)
returns text
language sql
return pg_current_xact_id()::text || ' ' || p_fence;

-- _command_unended makes COMMIT fail while a command is open. command_open declares a cursor WITH
-- HOLD over it, and COMMIT runs the query of such a cursor. Its error rolls the transaction back.
-- command_close and command_fail close the cursor. PREPARE TRANSACTION raises 0A000.
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

-- _command_reopen decides for a command without a final response. With the key, it locks the row.
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
    -- A locked row means that an attempt is ending it.
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
  -- The row stays locked and unchanged until command_close or command_fail.
  if v_outcome = 'retryable_failure' then
    v_seen.fence := nextval('pawl.fence_seq');
    v_seen.attempts := v_seen.attempts + 1;
  -- Its lease has ended and its effect is not known.
  elsif v_outcome = 'unknown' and v_seen.status = 'processing' then
    v_seen := pawl_v1._command_take(v_seen, 'unknown', '{}');
  end if;
  return query
  select v_outcome, v_seen.fence, v_seen.attempts::int, v_seen.failure_code::text, v_seen.failure_message::text;
end
$$;

-- command_close completes command_open. Call it as the last statement before COMMIT. It writes the
-- successful command with its answer, once. p_fence and p_xact are those that command_open
-- returned. Result and body have at most 4 MiB each. Each error aborts your transaction.
--
-- Outcomes:
--   succeeded  The command has succeeded once you commit.
--
-- Errors:
--   25000  Your work has ended the transaction in which the command was opened. Its later commits
--          are durable: call command_fail with 'unknown'.
--   34000  Your work has closed the cursor of command_open.
--   P4020  A newer attempt has the command, or it has ended. DETAIL as of command_renew.
--   40001  Above READ COMMITTED: another transaction ended it since your snapshot. Restart the
--          transaction.
--   P4004  An argument.
--
-- Options:
--   retention_ms      (1 s to 10 years, default 24 h) How long the command is remembered, from now.
--   response_status   (100 to 999, default none) Part of the answer.
--   response_headers  (object, default none) Part of the answer.
--   result_ref_type, result_ref_id
--                     (1 to 255 octets, default none) The object that was made.
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
    -- Replace a retryable failure. Its row is locked since command_open.
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
    when invalid_cursor_name then -- the work has executed CLOSE ALL
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

-- command_claim claims a command under a lease, in its own transaction. A plain read answers a
-- finished command, with no lock, no write and no wait. Claims of one key run one at a time, under
-- an advisory lock that lasts until the transaction ends.
--
-- Outcomes:
--   new_claim          You hold it. Do the work, then call command_succeed or command_fail with
--                      this fence.
--   retryable_failure  The attempt before failed, and its failure is in the row. You hold it, with
--                      a new fence.
--   processing_stale   The lease of the attempt before has ended, and 'repeatable' is true. You
--                      hold it, with a new fence.
--   replay_success     It is done: the row has the stored answer. Commit before you pass it on.
--   final_failure      It failed for good: the row has the stored failure. Commit before you pass
--                      it on.
--   processing_active  Another attempt runs. detail.claimed_by names its owner, if the claim gave
--                      one. While a transaction is claiming or ending it, the other columns may be
--                      null. Ask again after retry_after_ms.
--   unknown            The attempt before may have taken effect and did not report it. No attempt
--                      holds it. Find out; then command_settle.
--   mismatch           The key came before with another payload, as of command_open. Use a new key,
--                      or fix the caller.
--
-- Errors:
--   P4002, P4029, P4030, P4031
--          With option 'raise': 'mismatch', 'processing_active', 'final_failure' (DETAIL holds the
--          failure), 'unknown'.
--   55P03  Another transaction has been inserting or purging the row for more than 2 s. As
--          'processing_active'.
--   40001  Restart the transaction.
--   P4000, P4001, P4003, P4004
--          An argument.
--
-- Options:
--   lease_ms      (1 s to 12 h, default 300 s) How long it is yours without a renewal.
--   wait_ms       (0 to 10 min, default 0) How long to wait for the transaction of another claim.
--                 It does not wait for leases.
--   retention_ms  (1 s to 10 years, default 24 h) How long the finished command is remembered, from
--                 its end.
--   repeatable    (boolean) Running it again after an attempt stopped renewing is safe, because all
--                 its writes commit together with command_succeed. Without it such a command
--                 becomes 'unknown'.
--   claimed_by    (1 to 255 octets, default none) For people.
--   raise         (boolean) Raise an error for outcomes with which the caller cannot continue.
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
  -- The checks cost as much as the claim, so they are called only if a test fails.
  if (octet_length(p_scope) between 1 and 255 and octet_length(p_key) between 1 and 255 and octet_length(p_hash) = 32
      and p_options - '{lease_ms,wait_ms,retention_ms,repeatable,claimed_by,raise}'::text[] = '{}') is not true
  then
    perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
            pawl_v1._check_options(p_options, '{lease_ms,wait_ms,retention_ms,repeatable,claimed_by,raise}');
  end if;

  for v_try in 1..4 loop
    -- Most responses come from here, without a lock or a write.
    select c.*
      into v_seen
      from pawl.command as c
     where c.scope = p_scope
       and c.key = p_key;
    if found then
      v_outcome := pawl_v1._command_standing(v_seen, p_hash);
      exit when v_outcome is not null;
    end if;

    -- With the lock, concurrent claims learn at once that the key is taken, instead of waiting in
    -- INSERT. Fences are drawn in the order in which the key is held.
    if not v_locked then
      v_locked := pg_try_advisory_xact_lock(pawl_v1._command_lock(p_scope, p_key));
      if not v_locked then
        v_wait := pawl_v1._int_option(p_options, 'wait_ms', 0, 0, 600000);
        v_locked := pawl_v1._command_wait(p_scope, p_key, v_wait);
        continue when v_locked; -- the other transaction may have ended the command
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

    -- A locked row means that an attempt is ending it, or a purge.
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
      -- A silent attempt may have taken effect. It runs again only if that is safe.
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
           then pawl_v1._unreplicated()
           else '{}'
         end;
end
$$;

-- _command_misfit reports a status that only a later version knows.
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

-- _command_mismatch returns the detail of a mismatch. It waits for replication.
create or replace function pawl_v1._command_mismatch(p_stored bytea, p_given bytea)
returns jsonb
language sql
return jsonb_build_object('stored_hash', encode(p_stored, 'hex'), 'given_hash', encode(p_given, 'hex'))
  || case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unreplicated() end;

-- _command_standing returns the outcome of a row for a new claim, or null if the key may be
-- claimed. The payload is compared first, also while the first attempt runs.
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
-- int || text is only stable: with it the function would not be inlined.
return hashtextextended(octet_length(p_scope)::text || ':' || p_scope || p_key, 1885435758);

-- _command_wait waits up to p_ms for the lock of a key and reports whether it has it.
create or replace function pawl_v1._command_wait(p_scope text, p_key text, p_ms int)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  if p_ms = 0 then -- lock_timeout 0 waits for ever
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

-- _command_take claims a command that is not held, or marks it unknown. The row is locked.
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

-- _command_raise raises the outcomes covered by option raise and returns for the others.
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

-- _command_refuse raises P4020. DETAIL: absent, rolled_back (the claim's transaction did not
-- commit), superseded (by a newer attempt), or the status in which this attempt ended.
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

-- command_hold locks a leased command's row and checks the fence. Call it first in the transaction
-- that writes and ends the command: a stale attempt then stops before it writes. No other attempt
-- can take over while the transaction is open.
--
-- Outcomes:
--   held  The row is locked until this transaction ends.
--
-- Errors:
--   P4020  You no longer hold it. DETAIL as of command_renew.
--   55P03  Another transaction has had the row for more than 2 s. The state is not known yet.
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

-- command_renew renews the lease of a command. Call it at a third of the lease. If the lease has
-- ended and no other attempt has taken the command since, you hold it again.
--
-- Outcomes:
--   renewed  The lease ends at lease_expires_at.
--
-- Errors:
--   P4020  You no longer hold it. DETAIL is 'absent', 'superseded', 'rolled_back' (the transaction
--          of the claim did not commit), or the status in which this attempt has ended.
--   55P03  As of command_hold.
--   P4004  An argument.
--
-- Options:
--   lease_ms  (1 s to 12 h, default 300 s) The new lease, from now.
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

-- command_succeed ends a leased command with success, in the transaction of its rows, and stores
-- the answer. Result and body have at most 4 MiB each. It is never accepted twice. The memory that
-- command_claim was given counts from now. An error aborts your transaction, so an attempt that no
-- longer holds the command leaves no rows.
--
-- Outcomes:
--   succeeded  The command has succeeded once you commit.
--
-- Errors:
--   P4020  You no longer hold it. DETAIL as of command_renew. Drop this attempt, and claim again to
--          read the answer.
--   55P03  As of command_hold.
--   P4004  An argument.
--
-- Options:
--   response_status, response_headers, result_ref_type, result_ref_id
--             As of command_close.
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

-- command_fail records the failure of an attempt. Call it in the transaction that opened the
-- command, after rolling back to a savepoint set after command_open. No other transaction can claim
-- the command in between. If that transaction is lost, or the command is leased, call it in its own
-- transaction. Recording a failure twice is no error.
--
-- If there is no row, it inserts one as failed. If another transaction has the key open, it waits
-- for its end. p_error is {"error": text, "code": text}, of which 4,000 and 60 characters are kept.
--
-- Outcomes:
--   failed_retryable  The next claim may run it.
--   failed_final      With 'final': the failure is the answer from now on.
--   unknown           With 'unknown': it may have taken effect.
--
-- Errors:
--   P4020  Another attempt has the key, or it has ended. No row was written. Claim again to read
--          the answer.
--   P4000, P4001, P4003, P4004
--          An argument, or a fence that was never issued.
--   55P03  Another transaction has had the key open for more than 2 s.
--   40001  Restart the transaction.
--
-- Options:
--   final         (boolean) The failure is the answer from now on.
--   unknown       (boolean) The attempt may have taken effect.
--   retention_ms  (1 s to 10 years, default 24 h) As of command_close, for a row that is inserted.
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
  v_unreplicated jsonb := '{}';
  v_open   refcursor := 'pawl_command_' || p_fence;
begin
  perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_hash(p_hash),
          pawl_v1._check_options(p_options, '{final,unknown,retention_ms}');
  perform pawl_v1._command_check_fence(p_fence);

  for v_try in 1..4 loop
    -- This attempt holds the row, or was rolled back over an older failure, which is still there.
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

    -- Another transaction may have opened the key without a row yet. Wait for its end.
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
    -- Reported before.
    if v_seen.fence = p_fence and v_seen.status in ('failed_retryable', 'failed_final') then
      if current_setting('synchronous_standby_names') <> '' then
        v_unreplicated := pawl_v1._unreplicated();
      end if;
      exit;
    end if;
    if v_seen.key is not null and (v_seen.fence > p_fence or v_seen.status <> 'failed_retryable') then
      perform pawl_v1._command_refuse(p_scope, p_key, p_fence);
    end if;
    v_seen := null; -- the row changed in between: try again
  end loop;
  if v_seen.key is null then
    raise exception 'command % of scope % keeps changing', p_key, p_scope
      using errcode = '40001', hint = 'restart the transaction';
  end if;
  -- It was opened in this transaction, which may commit from here on.
  if exists (select from pg_cursors as o where o.name = v_open::text) then
    close v_open;
  end if;
  return query
  select v_seen.status::text, v_seen.attempts::int, v_unreplicated;
end
$$;

-- _command_check_fence refuses a fence that was never issued: it would exceed all future ones.
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
