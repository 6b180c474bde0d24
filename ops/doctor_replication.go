package ops

import "context"

// checkReplication looks at what stands between an answer and the synchronous standbys that it should wait for.
func checkReplication(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, about string) Finding {
		return Finding{What: what, Fix: about,
			Why: "synchronous_standby_names promises that what was answered survives the loss of this server"}
	}, `with asked as (
  select from pg_catalog.pg_settings as s where s.name = 'synchronous_standby_names' and s.setting <> ''
)
select 'synchronous_commit is local here: no commit waits for the standbys',
       'turn it on: alter database ' || quote_ident(current_database()) || ' set synchronous_commit = on'
  from asked
  join pg_catalog.pg_settings as s on s.name = 'synchronous_commit' and s.setting = 'local'
 union all
select 'synchronous_commit is local for ' || coalesce('role ' || quote_ident(r.rolname), 'database ' || quote_ident(d.datname)) || ': its commits wait for no standby',
       'turn it on: alter ' || coalesce('role ' || quote_ident(r.rolname), 'database ' || quote_ident(d.datname)) || ' set synchronous_commit = on'
  from asked
 cross join pg_catalog.pg_db_role_setting as s
  left join pg_catalog.pg_roles as r on r.oid = s.setrole
  left join pg_catalog.pg_database as d on d.oid = s.setdatabase
 where (s.setdatabase = 0 or d.datname = current_database())
   and 'synchronous_commit=local' = any (s.setconfig)
 union all
select 'no synchronous standby is connected: every commit waits',
       'start the standby, or, to go on without that promise: alter system set synchronous_standby_names = '''', and reload'
  from asked
 where not pg_is_in_recovery()
   and not exists (select from pg_catalog.pg_stat_replication as r where coalesce(r.sync_state, 'hidden') in ('sync', 'quorum', 'hidden'))
 union all
select 'worker ' || w.id || ' (' || w.name || ') does not hear that a commit stopped waiting for its standby',
       'call pawl.Watch on the configuration of its pool'
  from asked
 cross join pawl.worker as w
 where w.report is not null
   and (w.report ->> 'watched')::boolean is not true
   and not `+silent)
}
