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

revoke all on all functions in schema pawl_v1 from public;
