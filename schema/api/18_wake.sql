-- Waking idle workers. A worker that finds its queue empty for a while takes an exclusive advisory
-- lock on its presence connection. A function that makes a job due tries the shared lock and
-- releases it at once. It notifies only if the lock was taken. So an enqueue notifies only while a
-- worker is idle, and commits do not queue for the lock of NOTIFY. A worker that misses one polls.
--
--   worker   polls · worker_asleep: takes the lock · polls again · waits for a notification
--   enqueue  insert · tries the shared lock: free, no worker is idle · COMMIT
--            insert · tries the shared lock: taken, NOTIFY · COMMIT ──▶ worker: worker_awake, polls

-- _wake_key returns the second number of a queue's lock, whose first is 1885435767. It is also the
-- payload of notifications on pawl_jobs. Queues may share a number.
create or replace function pawl_v1._wake_key(p_queue text)
returns int
language sql
immutable
return hashtext(p_queue);

-- _asleep reports whether a worker of the queue is idle. It is one expression: if the call were
-- interrupted between lock and unlock, the session would keep the lock.
create or replace function pawl_v1._asleep(p_queue text)
returns boolean
language sql
volatile
return case
    when pg_try_advisory_lock_shared(1885435767, pawl_v1._wake_key(p_queue))
      then not pg_advisory_unlock_shared(1885435767, pawl_v1._wake_key(p_queue))
    else true
  end;

-- _wake notifies the idle workers of the queues at COMMIT. Notifying transactions commit one at a
-- time, so at most eight open transactions notify, each with a lock of its own. The woken worker
-- finds the jobs of the others at once or soon after. With a single lock, one long transaction
-- would keep all others from notifying. Where prepared transactions are enabled it does nothing,
-- because PREPARE TRANSACTION refuses a transaction that has notified.
create or replace function pawl_v1._wake(p_queues text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('max_prepared_transactions') = '0' then
    perform pg_notify('pawl_jobs', pawl_v1._wake_key(q.name)::text)
       from (select distinct u.name from unnest(p_queues) as u (name)) as q
      where pawl_v1._asleep(q.name)
        and pg_try_advisory_xact_lock(1885435768 + pg_backend_pid() % 8, pawl_v1._wake_key(q.name));
  end if;
end
$$;

-- _wake_keepers makes the listening keepers read the schedules, at COMMIT. It does so if a schedule
-- is due within a second, their longest poll interval, or if a keeper must compute its next tick.
-- Schedules change rarely, so it does not test whether a keeper is idle. At most eight notify, as
-- in _wake.
create or replace function pawl_v1._wake_keepers(p_next_at timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_next_at < clock_timestamp() + interval '1 second', true)
     and current_setting('max_prepared_transactions') = '0'
     and pg_try_advisory_xact_lock(1885435776, pg_backend_pid() % 8) then
    perform pg_notify('pawl_jobs', 'schedules');
  end if;
end
$$;

-- job_kick notifies the idle workers of these queues, up to 1,000: see worker_asleep. It is a hint,
-- because a worker that misses it polls.
--
-- You seldom need it. These functions notify an idle worker if they make a job due
-- (docs/decisions/0050-wake-ups.md#what-wakes-and-what-waits):
--
-- - job_enqueue, job_enqueue_many, job_retry, job_reschedule, job_cancel, job_cancel_own,
--   job_discard;
-- - outbox_append, outbox_append_many, inbox_store, inbox_replay, schedule_tick, schedule_run_now;
-- - lane_unblock, queue_set, worker_leave, step_settle, step_end;
-- - sequence_gate_pass, sequence_gate_reset, sequence_gate_release.
--
-- Call job_kick on its own after your commit in two cases. In the first, your transaction stayed
-- open for long after it enqueued, so a worker may have become idle meanwhile. In the second, the
-- server has max_prepared_transactions above 0. There no other function notifies, because PREPARE
-- TRANSACTION refuses a transaction that has notified.
--
-- Outcomes:
--   told  The idle workers are notified at the commit.
--
-- Errors:
--   P4000, P4004  An argument.
create or replace function pawl_v1.job_kick(p_queues text[])
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_batch('queues', coalesce(cardinality(p_queues), 0), 1000, coalesce(cardinality(p_queues), 0));
  perform pawl_v1._check_scope('queue', q.name)
     from unnest(p_queues) as q (name);
  perform pg_notify('pawl_jobs', pawl_v1._wake_key(q.name)::text)
     from unnest(p_queues) as q (name)
    where pawl_v1._asleep(q.name);
  return query
  select 'told', '{}'::jsonb;
end
$$;

-- worker_asleep announces that a worker of these queues, up to 1,000, is idle. It returns a row per
-- queue. Until worker_awake, or the end of the session, functions that make a job of them due
-- notify channel 'pawl_jobs'. Without an announcement they send nothing. Use the connection of
-- worker_attend, in this order:
--
-- 1. Run 'listen pawl_jobs', once.
-- 2. Poll until the queue has been empty for a while, such as 60 ms. A busy queue is empty for
--    moments. If each of them were announced, most enqueues would notify, and transactions that
--    notify commit one at a time.
-- 3. Call worker_asleep, once a queue.
-- 4. Claim once more. An enqueue that committed just before sent no notification.
-- 5. Wait for a notification whose payload is 'signal', and continue polling, at longer pauses.
-- 6. When it comes, call worker_awake and claim. Continue at 2. If you found no job, wait longer
--    than before.
--
-- The column signal is the second number of the queue's advisory lock:
-- docs/concepts/leases.md#keys-of-advisory-locks. Queues with the same number wake each other's
-- workers in vain.
--
-- Outcomes:
--   asleep  Announced.
--   taken   Another session is announced for this queue. You receive its notifications as long as
--           you listen. Ask again after a notification, and after some seconds.
--
-- Errors:
--   P4000, P4004  An argument.
create or replace function pawl_v1.worker_asleep(p_queues text[])
returns table (outcome text, queue text, signal text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_batch('queues', coalesce(cardinality(p_queues), 0), 1000, coalesce(cardinality(p_queues), 0));
  perform pawl_v1._check_scope('queue', q.name)
     from unnest(p_queues) as q (name);
  return query
  select case when pg_try_advisory_lock(1885435767, pawl_v1._wake_key(q.name)) then 'asleep' else 'taken' end,
         q.name, pawl_v1._wake_key(q.name)::text, '{}'::jsonb
    from unnest(p_queues) as q (name);
end
$$;

-- worker_awake takes back the announcement of worker_asleep for these queues, up to 1,000, on this
-- session. It returns a row per queue. Call it as soon as a notification arrives or there is work:
-- until then each enqueue notifies.
--
-- Outcomes:
--   awake      Taken back.
--   was_awake  This session had announced none.
--
-- Errors:
--   P4000, P4004  An argument.
create or replace function pawl_v1.worker_awake(p_queues text[])
returns table (outcome text, queue text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set client_min_messages = 'error' -- suppress the warning for a lock that is not held
as $$
begin
  perform pawl_v1._check_batch('queues', coalesce(cardinality(p_queues), 0), 1000, coalesce(cardinality(p_queues), 0));
  perform pawl_v1._check_scope('queue', q.name)
     from unnest(p_queues) as q (name);
  return query
  select case when pg_advisory_unlock(1885435767, pawl_v1._wake_key(q.name)) then 'awake' else 'was_awake' end, q.name, '{}'::jsonb
    from unnest(p_queues) as q (name);
end
$$;
