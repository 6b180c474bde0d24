-- Three roles to grant to your own logins, for instance: grant pawl_app to orders_service;
--
-- pawl_app runs the functions. They run with the caller's rights, so it also holds the DML
-- privileges that they need. Direct writes are therefore possible, and using the functions is a
-- convention. pawl_operator can do what pawl_app does and runs the audited verbs. It can add audit
-- records but not change them. pawl_reader only reads.
--
-- The script needs CREATEROLE and is safe to run again. dist/pawl.sql leaves it out: roles belong
-- to the server.

do $$
declare
  v_role pg_catalog.text;
begin
  foreach v_role in array array['pawl_app', 'pawl_operator', 'pawl_reader'] loop
    begin
      execute pg_catalog.format('create role %I nologin', v_role);
    exception
      -- It exists, or another session just made it.
      when duplicate_object or unique_violation then null;
    end;
  end loop;
end
$$;

grant usage on schema pawl, pawl_v1 to pawl_app, pawl_operator, pawl_reader;

grant select, insert, update, delete on pawl.inbox, pawl.delivery, pawl.sequence_gate, pawl.sequence_gate_held, pawl.job, pawl.job_key, pawl.lane, pawl.worker, pawl.recall, pawl.fence, pawl.rollup, pawl.stale_write to pawl_app, pawl_operator;
grant select, insert, truncate on pawl.archive_0, pawl.archive_1, pawl.archive_2, pawl.archive_3,
  pawl.archive_4, pawl.archive_5, pawl.archive_6, pawl.archive_7 to pawl_app, pawl_operator;
grant select, insert, update on pawl.death to pawl_app, pawl_operator;
grant select on pawl.queue to pawl_app;
grant select, insert, update on pawl.schedule to pawl_app;
grant select, insert, update on pawl.consumer, pawl.forgotten to pawl_app, pawl_operator;
grant select, insert, update on pawl.queue to pawl_operator;
grant select, insert, update, delete on pawl.schedule to pawl_operator;
grant select, insert, update, delete on pawl.command, pawl.step, pawl.step_call, pawl.replay to pawl_app, pawl_operator;
grant select, insert on pawl.audit to pawl_operator;
grant select on pawl.migration to pawl_app, pawl_operator;
grant usage on all sequences in schema pawl to pawl_app, pawl_operator;
grant execute on all functions in schema pawl_v1 to pawl_app, pawl_operator;

-- Only operators may run the audited verbs.
revoke execute on function
  pawl_v1.job_retry(bigint, text, text, jsonb),
  pawl_v1.job_cancel(bigint, text, text, jsonb),
  pawl_v1.job_discard(bigint, text, text, jsonb),
  pawl_v1.job_recall(bigint),
  pawl_v1.lane_unblock(text, text, text, text, jsonb),
  pawl_v1.lane_policy(text, text, text, text, text),
  pawl_v1.queue_set(text, jsonb, text, text),
  pawl_v1.schedule_pause(text, text, text),
  pawl_v1.schedule_resume(text, text, text),
  pawl_v1.schedule_run_now(text, text, text),
  pawl_v1.schedule_delete(text, text, text),
  pawl_v1.sequence_gate_reset(text, text, bigint, text, text, jsonb),
  pawl_v1.sequence_gate_release(text, text, text, text, jsonb),
  pawl_v1.inbox_forget(text, text, text, text, jsonb),
  pawl_v1.inbox_replay(text, text, text, text, jsonb),
  pawl_v1.command_settle(text, text, bigint, text, text, text, jsonb),
  pawl_v1.step_settle(text, text, text, bigint, text, text, text, jsonb),
  pawl_v1.step_again(text, text, text, bigint, text, text, jsonb),
  pawl_v1.purge_audit(text, bigint, text, text, jsonb)
from pawl_app;

grant select on all tables in schema pawl_v1 to pawl_app, pawl_operator, pawl_reader;
grant select on all tables in schema pawl to pawl_reader;
grant select on all sequences in schema pawl to pawl_reader;

-- Functions that only read may be called by pawl_reader.
grant execute on function
  pawl_v1.stale_classify(text, jsonb),
  pawl_v1._dead_letter_advice(pawl.job),
  pawl_v1._steps_of_job(pawl.job),
  pawl_v1._step_doubts(pawl.step),
  pawl_v1.explain(text, jsonb),
  pawl_v1._story(text, text, text[], text[], text[], text[]),
  pawl_v1._steps_of(text, bigint[], text[]),
  pawl_v1._refused_of(text, text[], text[]),
  pawl_v1._presence(bigint),
  pawl_v1._sequences_behind(bigint),
  pawl_v1._key_of_job(bigint, timestamptz),
  pawl_v1._story_of_jobs(bigint[]),
  pawl_v1._names(text, text, int),
  pawl_v1._owners_of(text),
  pawl_v1.purge_count(text, jsonb),
  pawl_v1._purge_cut_off(text, jsonb),
  pawl_v1._before(bigint),
  pawl_v1._check_promise(text, bigint, boolean),
  pawl_v1._check_options(jsonb, text[]),
  pawl_v1._refuse_options(jsonb, text[]),
  pawl_v1._check_key(text, text),
  pawl_v1._refuse_key(text, text),
  pawl_v1._check_scope(text, text),
  pawl_v1._refuse_scope(text, text),
  pawl_v1._check_int(text, bigint, bigint, bigint),
  pawl_v1._refuse_int(text, bigint, bigint, bigint),
  pawl_v1._int_option(jsonb, text, bigint, bigint, bigint),
  pawl_v1._int_given(jsonb, text, bigint, bigint),
  pawl_v1._joined(text, text, text),
  pawl_v1._audit_target(text, text[])
to pawl_reader;
