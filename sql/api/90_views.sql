-- What people look at without our tools.

-- Jobs nobody will try again until an operator decides. args_text shows octets outside ASCII as \ooo.
create or replace view pawl_v1.dead_letters as
select j.id,
       j.queue,
       j.kind,
       j.status,
       j.attempts,
       j.crashes,
       j.last_errors -> -1 ->> 'error' as last_error,
       j.last_errors,
       j.headers,
       j.args,
       encode(j.args, 'escape') as args_text,
       j.created_at
  from pawl.job as j
 where j.status in ('dead_letter', 'unknown');

-- Every job that has not finished, payload left out.
create or replace view pawl_v1.jobs as
select j.id,
       j.queue,
       j.kind,
       j.status,
       j.priority,
       j.attempts,
       j.max_attempts,
       j.crashes,
       j.fence,
       j.available_at,
       j.created_at,
       w.name as worker,
       j.last_errors -> -1 ->> 'error' as last_error,
       octet_length(j.args) as args_octets,
       l.name as lane
  from pawl.job as j
  left join pawl.worker as w on w.id = j.claimed_by
  left join pawl.lane as l on l.id = j.lane_id;

-- Lanes, what has the turn in each, and how many wait for it. Counts the waiting of every lane it shows.
create or replace view pawl_v1.lanes as
select l.id,
       l.queue,
       l.name,
       l.policy,
       h.id as head,
       h.status as head_status,
       w.waiting,
       w.oldest
  from pawl.lane as l
  left join pawl.job as h on h.lane_id = l.id and h.lane_head
 cross join lateral (
        select count(*) as waiting,
               min(j.created_at) as oldest
          from pawl.job as j
         where j.lane_id = l.id
           and j.status = 'waiting') as w;

-- Jobs that keep failing and are still being tried: the dead letters of tomorrow. Reads the whole table.
create or replace view pawl_v1.hot_retries as
select j.id,
       j.queue,
       j.kind,
       j.status,
       j.attempts,
       j.max_attempts,
       j.crashes,
       j.last_errors -> -1 ->> 'error' as last_error,
       j.available_at,
       j.created_at
  from pawl.job as j
 where j.attempts >= 5
   and j.status in ('pending', 'waiting', 'processing');

revoke all on all functions in schema pawl_v1 from public;
