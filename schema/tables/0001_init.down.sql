-- Drops everything that Pawl created, with its data. It does not cascade: if one of your objects
-- depends on Pawl's tables or functions, the script fails and names it.

drop view if exists pawl_v1.outbox_events, pawl_v1.outbox_heads, pawl_v1.outbox_lag, pawl_v1.outbox_pending;
drop view if exists pawl_v1.archive, pawl_v1.backlog, pawl_v1.dead_letters, pawl_v1.gates, pawl_v1.hot_retries, pawl_v1.jobs, pawl_v1.lanes, pawl_v1.queues,
  pawl_v1.schedules;
drop view if exists pawl_v1.stale_commands, pawl_v1.suppression_by_scope, pawl_v1.steps;

do $$
begin
  execute ( -- one statement, because functions depend on each other
    select 'drop function ' || string_agg(p.oid::regprocedure::text, ', ')
      from pg_catalog.pg_proc as p
     where p.pronamespace = 'pawl_v1'::regnamespace);
end
$$;

drop table pawl.archive_0, pawl.archive_1, pawl.archive_2, pawl.archive_3,
  pawl.archive_4, pawl.archive_5, pawl.archive_6, pawl.archive_7;
drop table pawl.consumer, pawl.forgotten, pawl.delivery, pawl.sequence_gate, pawl.sequence_gate_held;
drop table pawl.audit, pawl.command, pawl.step, pawl.step_call, pawl.replay, pawl.fence, pawl.inbox, pawl.job_key, pawl.job, pawl.lane, pawl.queue, pawl.schedule,
  pawl.worker, pawl.recall, pawl.death, pawl.rollup, pawl.stale_write, pawl.migration;
drop sequence pawl.position_seq, pawl.fence_seq;
drop domain pawl.name, pawl.hash, pawl.count, pawl.max_attempts, pawl.priority, pawl.job_status,
  pawl.command_status, pawl.step_status, pawl.step_recovery, pawl.call_outcome, pawl.ordinal, pawl.http_status, pawl.octets, pawl.message;
drop schema pawl_v1;
drop schema pawl;
