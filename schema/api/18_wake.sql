-- Waking workers that sleep. A worker that finds its queue empty for a while takes an exclusive advisory lock on its presence connection. A
-- function that makes a job due tries that lock shared, gives it back at once, and notifies only if it was taken. So an enqueue notifies only
-- while a worker sleeps, and commits do not queue for the lock of NOTIFY. It is a hint: a worker that misses it polls.
--
--   worker   polls a few times · worker_asleep: the lock · polls once more · waits for a notification or its next poll
--   enqueue  insert · the lock, shared: free, no worker sleeps · COMMIT
--            insert · the lock, shared: taken, so NOTIFY        · COMMIT ──▶ worker: worker_awake, polls

-- The second number of the lock of a queue, whose first is 1885435767, and what notifications on pawl_jobs carry. Queues that share a number
-- wake each other's workers in vain.
create or replace function pawl_v1._wake_key(p_queue text)
returns int
language sql
immutable
return hashtext(p_queue);

-- Whether a worker of the queue sleeps. One expression: were the call cut between lock and unlock, the session would keep the lock.
create or replace function pawl_v1._asleep(p_queue text)
returns boolean
language sql
volatile
return case
    when pg_try_advisory_lock_shared(1885435767, pawl_v1._wake_key(p_queue))
      then not pg_advisory_unlock_shared(1885435767, pawl_v1._wake_key(p_queue))
    else true
  end;

-- Wakes the sleeping workers of the queues, at COMMIT. Of the transactions that are open at once eight at most notify, by a lock each, because
-- those that do commit one at a time; the jobs of the others are there when the worker has woken, or soon after. With one lock for all, a
-- transaction that stays open would keep every other from waking a worker. Where transactions can be prepared it does nothing: PREPARE TRANSACTION refuses one
-- that has notified.
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

-- Has the keepers beside workers that listen look at the schedules, at COMMIT, if one is due within the second that they poll in at most, or a
-- keeper has to find its next tick. Schedules change seldom, so it does not ask whether a keeper sleeps; but at most eight transactions
-- at once notify, as of _wake.
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

-- Tells the workers that sleep that there are jobs in these queues. What enqueues does so by itself. Call it on its own after your commit, if
-- your transaction was open for long after it enqueued: a worker may have fallen asleep meanwhile. It notifies too where transactions can be
-- prepared.
-- outcome 'told'.
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

-- Says that a worker of these queues, up to 1000, finds nothing and waits: from now on enqueues notify channel pawl_jobs. Call it on the
-- connection of worker_attend, which listens there, once a queue until worker_awake, and then claim once more: what was enqueued just before
-- sent no notification. The server takes it back when the connection ends.
-- A row for each queue: outcome 'asleep', or 'taken': another worker of it sleeps already, and every listener hears what wakes that one.
-- signal: the payload of notifications that mean the queue.
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

-- Takes back what worker_asleep said of these queues. Call it as soon as a notification comes, and when there is work: until then each
-- enqueue notifies.
-- A row for each queue: outcome 'awake', or 'was_awake': this session had not said that it sleeps.
create or replace function pawl_v1.worker_awake(p_queues text[])
returns table (outcome text, queue text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set client_min_messages = 'error' -- a lock that is not held is answered, not warned of
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
