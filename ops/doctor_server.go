package ops

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pooler"
)

func checkDurability(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, about string) Finding {
		return Finding{What: what, Fix: about,
			Why: "a commit that was answered may be gone after a crash of the server: its effect, its memory, and the broker has been told that it is done"}
	}, `select 'synchronous_commit is ' || s.setting || ' here', 'turn it on: alter database ' || quote_ident(current_database()) || ' set synchronous_commit = on'
  from pg_catalog.pg_settings as s
 where s.name = 'synchronous_commit'
   and s.setting = 'off'
 union all
select 'synchronous_commit is off for ' || coalesce('role ' || quote_ident(r.rolname), 'database ' || quote_ident(d.datname)),
       'turn it on: alter ' || coalesce('role ' || quote_ident(r.rolname), 'database ' || quote_ident(d.datname)) || ' set synchronous_commit = on'
  from pg_catalog.pg_db_role_setting as s
  left join pg_catalog.pg_roles as r on r.oid = s.setrole
  left join pg_catalog.pg_database as d on d.oid = s.setdatabase
 where (s.setdatabase = 0 or d.datname = current_database())
   and 'synchronous_commit=off' = any (s.setconfig)
   and not (s.setrole = 0 and (select o.setting from pg_catalog.pg_settings as o where o.name = 'synchronous_commit') = 'off')
 union all
select s.name || ' is off', 'turn it on in postgresql.conf'
  from pg_catalog.pg_settings as s
 where s.name in ('fsync', 'full_page_writes')
   and s.setting = 'off'`)
}

// poolerProbes is how often a session that is no *pgx.Conn is asked who it is.
const poolerProbes = 8

// checkPooler looks at the doctor's own connection, and at what workers report of theirs.
func checkPooler(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	found, err := findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "it holds no presence lock: if its process is killed, its jobs wait for the lease, and until then it counts as alive"}
	}, `select 'worker ' || w.id || ' (' || w.name || ') keeps its presence through a pooler in transaction or statement mode',
       'set Presence.URL of that program to a direct connection, or Presence.Off'
  from pawl.worker as w
 where (w.report ->> 'pooled')::boolean
   and not `+silent+`
 order by w.id`)
	if err != nil {
		return nil, err
	}
	between, err := changesSession(ctx, db)
	if between {
		found = append(found, Finding{What: "one connection is served by several sessions: a pooler in transaction or statement mode is in between",
			Why: "a presence lock and LISTEN last as long as a session: without them the jobs of a killed process wait for their lease, and new ones for the next poll",
			Fix: "give workers a direct URL for their presence connection, or leave presence off; all else works through such a pooler"})
	}
	return found, err
}

// changesSession reports whether several sessions serve db.
func changesSession(ctx context.Context, db DB) (bool, error) {
	if conn, ok := db.(*pgx.Conn); ok {
		_, err := pooler.Check(ctx, conn, func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, conn.Config()) })
		if errors.Is(err, pooler.ErrBetween) {
			return true, nil
		}
		return false, err
	}
	if _, inTx := db.(pawl.Tx); inTx {
		return false, nil // a transaction keeps its session in any case
	}
	var first int
	for i := range poolerProbes {
		var pid int
		if err := db.QueryRow(ctx, "select pg_catalog.pg_backend_pid()").Scan(&pid); err != nil {
			return false, err
		}
		if i == 0 {
			first = pid
		}
		if pid != first {
			return true, nil
		}
	}
	return false, nil
}

func checkSnapshots(ctx context.Context, db DB, l Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "vacuum removes nothing that died since: claims read more and more dead rows, and tables grow"}
	}, `select 'session ' || a.pid || ' of ' || coalesce(a.usename, '?') || coalesce(' (' || nullif(a.application_name, '') || ')', '')
         || ' has had a transaction open since ' || date_trunc('second', a.xact_start) || ', and is ' || coalesce(a.state, 'active'),
       'end it: select pg_terminate_backend(' || a.pid || '); then set idle_in_transaction_session_timeout for that program'
  from pg_catalog.pg_stat_activity as a
 where a.datname = current_database()
   and a.pid <> pg_backend_pid()
   and (a.backend_xmin is not null or a.backend_xid is not null or a.state like 'idle in transaction%')
   and a.xact_start < clock_timestamp() - $1 * interval '1 millisecond'
 union all
select 'replication slot ' || quote_ident(s.slot_name) || ' holds ' || greatest(age(s.xmin), age(s.catalog_xmin)) || ' transactions back'
         || case when s.active then '' else ', and nobody reads from it' end,
       'bring its reader back, or: select pg_drop_replication_slot(' || quote_literal(s.slot_name) || ')'
  from pg_catalog.pg_replication_slots as s
 where greatest(age(s.xmin), age(s.catalog_xmin)) > 1000000
    or not s.active and s.xmin is not null`, l.Transaction.Milliseconds())
}

func checkPrepared(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix,
			Why: "it holds its locks and its snapshot until somebody ends it, also after a restart: keys, lanes and jobs it has touched stand still. Pawl does not support PREPARE TRANSACTION"}
	}, `select 'prepared transaction ' || quote_literal(p.gid) || ' of ' || p.owner || ' is open since ' || date_trunc('second', p.prepared),
       'commit prepared ' || quote_literal(p.gid) || ', or rollback prepared ' || quote_literal(p.gid)
  from pg_catalog.pg_prepared_xacts as p
 where p.database = current_database()`)
}

func checkVacuum(ctx context.Context, db DB, l Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "finished work leaves dead rows behind: claims, purges and look-ups read past them, and the tables grow"}
	}, `with hot as (
  select c.oid, c.relname, c.reltuples, s.n_dead_tup,
         (select o.option_value from pg_catalog.pg_options_to_table(c.reloptions) as o where o.option_name = 'autovacuum_enabled') as enabled,
         coalesce((select o.option_value::float from pg_catalog.pg_options_to_table(c.reloptions) as o where o.option_name = 'autovacuum_vacuum_threshold'),
                  current_setting('autovacuum_vacuum_threshold')::float)
         + greatest(c.reltuples, 0)
         * coalesce((select o.option_value::float from pg_catalog.pg_options_to_table(c.reloptions) as o where o.option_name = 'autovacuum_vacuum_scale_factor'),
                    current_setting('autovacuum_vacuum_scale_factor')::float) as threshold
    from pg_catalog.pg_class as c
    left join pg_catalog.pg_stat_user_tables as s on s.relid = c.oid
   where c.relnamespace = 'pawl'::regnamespace
     and c.relkind = 'r'
)
select 'autovacuum is off for the whole server', 'turn it on: alter system set autovacuum = on; select pg_reload_conf()'
 where not current_setting('autovacuum')::boolean
 union all
select 'autovacuum is off for pawl.' || h.relname, 'alter table pawl.' || h.relname || ' reset (autovacuum_enabled)'
  from hot as h
 where h.enabled in ('off', 'false', 'no', '0')
 union all
select 'pawl.' || h.relname || ' has about ' || h.n_dead_tup || ' dead rows',
       'if a check above names an open transaction, end that first; then: vacuum pawl.' || h.relname || '; and give autovacuum more workers or a shorter naptime'
  from hot as h
 where h.n_dead_tup > 3 * h.threshold + $1`, l.DeadRows)
}

func checkIndexes(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "an invalid index finds nothing: claims and look-ups read the whole table, and what it kept unique is not"}
	}, `select 'index pawl.' || c.relname || ' is invalid', 'reindex index pawl.' || c.relname
  from pg_catalog.pg_index as i
  join pg_catalog.pg_class as c on c.oid = i.indexrelid
 where c.relnamespace = 'pawl'::regnamespace
   and not (i.indisvalid and i.indisready)`)
}

func checkCollations(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	const loose = `select 'column ' || t.relname || '.' || a.attname || ' is in collation ' || quote_ident(l.collname) || ' and indexed', 'bring the schema back: pawl migrate status'
  from pg_catalog.pg_attribute as a
  join pg_catalog.pg_class as t on t.oid = a.attrelid and t.relkind = 'r' and t.relnamespace = 'pawl'::regnamespace
  join pg_catalog.pg_collation as l on l.oid = a.attcollation and l.collname not in ('C', 'POSIX')
 where exists (select from pg_catalog.pg_index as i where i.indrelid = t.oid and a.attnum = any (i.indkey))`
	const changed = `select 'the collation of this database was made by version ' || d.datcollversion || ' of its library, which is now at '
         || coalesce(pg_catalog.pg_database_collation_actual_version(d.oid), 'none'),
       'reindex database ' || quote_ident(d.datname) || '; then: alter database ' || quote_ident(d.datname) || ' refresh collation version'
  from pg_catalog.pg_database as d
 where d.datname = current_database()
   and d.datcollversion is distinct from pg_catalog.pg_database_collation_actual_version(d.oid)`
	statement := loose
	var version int
	if err := db.QueryRow(ctx, "select pg_catalog.current_setting('server_version_num')::int").Scan(&version); err != nil {
		return nil, err
	}
	if version >= 150000 {
		statement += " union all " + changed
	}
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix,
			Why: "an index whose order has changed misses rows. Pawl's own keys are in collation C and safe; your business keys and unique constraints may let doubles in"}
	}, statement)
}

// checkPath finds schemas of a search_path in which others may create. Pawl's own functions and reads set their path; the SQL of your
// programs and of your administrators may not.
func checkPath(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix,
			Why: "an operator or a function created there can run in place of PostgreSQL's own in any statement that does not qualify it, with the rights of whoever sends that"}
	}, `with path as (
  select current_setting('pawl.search_path') as value
   union all
  select substr(c.setting, length('search_path=') + 1)
    from pg_catalog.pg_db_role_setting as s
    left join pg_catalog.pg_roles as r on r.oid = s.setrole
   cross join unnest(s.setconfig) as c (setting)
   where c.setting like 'search_path=%'
     and (s.setdatabase = 0 or s.setdatabase = (select d.oid from pg_catalog.pg_database as d where d.datname = current_database()))
     and (r.oid is null or r.rolcanlogin)
)
select case when a.grantee = 0 then 'PUBLIC' else 'role ' || quote_ident(r.rolname) end || ' may create objects in schema ' || quote_ident(n.nspname)
         || ', which is in a search_path',
       'revoke create on schema ' || quote_ident(n.nspname) || ' from ' || case when a.grantee = 0 then 'public' else quote_ident(r.rolname) end
         || '; or trust it and skip this check'
  from pg_catalog.pg_namespace as n
 cross join lateral aclexplode(n.nspacl) as a
  left join pg_catalog.pg_roles as r on r.oid = a.grantee
 where a.privilege_type = 'CREATE'
   and a.grantee <> n.nspowner
   and not coalesce(r.rolsuper, false)
   and exists (select from path as p
                cross join regexp_split_to_table(p.value, ',') as e (name)
                where btrim(e.name, ' "') = n.nspname)
 order by 1`)
}
