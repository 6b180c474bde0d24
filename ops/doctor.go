package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/migrate"
)

// A Finding is something that is wrong, or soon will be.
type Finding struct {
	Check string // its name, for Limits.Skip
	What  string // was found
	Why   string // it matters
	Fix   string
}

// A Diagnosis is the answer of [Diagnose].
type Diagnosis struct {
	Findings  []Finding
	Unchecked []Unchecked
	Checked   []string // the names of the checks that were made
}

// Unchecked is a check that could not be made.
type Unchecked struct{ Check, Why string }

// Limits say from when on something is a finding.
type Limits struct {
	// Transaction is how long a transaction may be open. Default 5 min. Vacuum removes nothing that died since it began.
	Transaction time.Duration
	// Waiting is how long work may be due before somebody takes it. Default 5 min.
	Waiting time.Duration
	// DeadRows is how many dead rows a table may have beyond thrice those at which autovacuum should have begun. Default 100,000.
	DeadRows int64
	// Overdue is how long rows whose memory is over may stay. Default 7 days.
	Overdue time.Duration
	// Skip are checks that are not made.
	Skip []string
}

func (l Limits) complete() Limits {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&l.Transaction, 5*time.Minute)
	set(&l.Waiting, 5*time.Minute)
	set(&l.Overdue, 7*24*time.Hour)
	if l.DeadRows == 0 {
		l.DeadRows = 100_000
	}
	return l
}

// A check looks for one kind of trouble.
type check struct {
	name string
	look func(ctx context.Context, db DB, l Limits) ([]Finding, error)
}

// checks are made in this order.
var checks = []check{
	{"contract", checkContract},
	{"durability", checkDurability},
	{"pooler", checkPooler},
	{"snapshots", checkSnapshots},
	{"prepared", checkPrepared},
	{"vacuum", checkVacuum},
	{"indexes", checkIndexes},
	{"collations", checkCollations},
	{"workers", checkWorkers},
	{"waiting", checkWaiting},
	{"crashes", checkCrashes},
	{"retention", checkRetention},
}

// Checks returns the names of all checks.
func Checks() []string {
	names := make([]string, len(checks))
	for i, c := range checks {
		names[i] = c.name
	}
	return names
}

// Diagnose looks for what makes trouble in production: in the server, the schema and the rows. Give it a connection, not a pool; it
// changes nothing. The login needs pawl_reader, and pg_monitor to see what other logins hold open. Some checks read the whole of
// pawl.job. What a handler takes is not stored, so a lease that is too short shows by crashes; and whether deliveries are remembered as
// long as they may come again is refused by each flow at its start.
//
// Errors: [pawl.ErrArgumentInvalid] for a name in Skip; those of the connection.
func Diagnose(ctx context.Context, db DB, l Limits) (d Diagnosis, err error) {
	for _, name := range l.Skip {
		if !slices.Contains(Checks(), name) {
			return d, &pawl.Error{Op: "doctor", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("there is no check %q", name),
				Hint: "known: " + strings.Join(Checks(), ", ")}
		}
	}
	l = l.complete()
	for _, c := range checks {
		if slices.Contains(l.Skip, c.name) {
			continue
		}
		found, err := c.look(ctx, db, l)
		if code := pawl.CodeOf(err); code == "42501" {
			d.Unchecked = append(d.Unchecked, Unchecked{c.name, err.Error()})
			continue
		}
		if err != nil {
			return d, pawl.Wrap("doctor."+c.name, err)
		}
		d.Checked = append(d.Checked, c.name)
		for _, f := range found {
			f.Check = c.name
			d.Findings = append(d.Findings, f)
		}
		if c.name == "contract" && len(found) > 0 {
			d.Unchecked = append(d.Unchecked, Unchecked{"all others", "the schema is not that of this build"})
			return d, nil
		}
	}
	if !slices.Contains(l.Skip, "snapshots") {
		d.Unchecked = append(d.Unchecked, hidden(ctx, db)...)
	}
	return d, nil
}

// hidden says that other logins' transactions cannot be seen.
func hidden(ctx context.Context, db DB) []Unchecked {
	var sees bool
	err := db.QueryRow(ctx, "select pg_has_role('pg_read_all_stats', 'usage')").Scan(&sees)
	if err != nil || sees {
		return nil
	}
	return []Unchecked{{"snapshots", "of other logins: grant pg_monitor to this one"}}
}

func checkContract(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	err := migrate.Check(ctx, db)
	var p *pawl.Error
	if !errors.Is(err, pawl.ErrSchemaMismatch) || !errors.As(err, &p) {
		return nil, err
	}
	return []Finding{{What: p.Err.Error(), Why: "workers and doors of this build refuse to start", Fix: p.Hint}}, nil
}

// findings makes one finding of each row that a statement returns: what, and what its fix is about.
func findings(ctx context.Context, db DB, of func(what, about string) Finding, statement string, args ...any) (all []Finding, err error) {
	rows, err := db.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Finding, error) {
		var what, about string
		err := row.Scan(&what, &about)
		return of(what, about), err
	})
}

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

// poolerProbes is how often the session is asked who it is.
const poolerProbes = 8

// checkPooler marks the session and looks whether it is still there, as a later statement of its own.
func checkPooler(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	if _, inTx := db.(pawl.Tx); inTx {
		return nil, nil // a transaction keeps its session in any case
	}
	var first int
	for i := range poolerProbes {
		var pid int
		if err := db.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
			return nil, err
		}
		if i == 0 {
			first = pid
		}
		if pid != first {
			return []Finding{{What: "one connection is served by several sessions: a pooler in transaction or statement mode is in between",
				Why: "a presence lock and LISTEN last as long as a session: without them the jobs of a killed process wait for their lease, and new ones for the next poll",
				Fix: "give workers a direct URL for their presence connection, or leave presence off; all else works through such a pooler"}}, nil
		}
	}
	return nil, nil
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
	if err := db.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&version); err != nil {
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

func checkWorkers(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "its jobs are nobody's until a worker sweeps, which each does several times a lease: no worker is running here"}
	}, `select 'worker ' || w.id || ' (' || w.name || ') has been silent since ' || date_trunc('second', w.seen_at) || ', past its lease, and holds '
         || count(*) || ' jobs', 'start a worker of any kind in this database'
  from pawl.worker as w
  join pawl.job as j on j.claimed_by = w.id
 where w.seen_at + 2 * w.lease + interval '5 seconds' < clock_timestamp()
 group by w.id
 order by w.id`)
}

func checkWaiting(ctx context.Context, db DB, l Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "nobody claims them: no worker that runs serves the queue and has a handler for the kind, or all are busy"}
	}, `select count(*) || ' jobs of kind ' || j.kind || ' in queue ' || j.queue || ' are due, the first since ' || date_trunc('second', min(j.available_at))
         || ', and none is being worked on',
       'run a worker with queue ' || j.queue || ' and a handler for ' || j.kind || '; or: pawl jobs list --queue ' || quote_literal(j.queue) || ' --kind ' || quote_literal(j.kind)
  from pawl.job as j
 where j.status = 'pending'
   and not exists (select from pawl.queue as q where q.name = j.queue and q.mode <> 'running')
 group by j.queue, j.kind
having min(j.available_at) < clock_timestamp() - $1 * interval '1 millisecond'
   and not exists (select from pawl.job as p
                     left join pawl.worker as w on w.id = p.claimed_by
                    where p.claimed_by is not null
                      and p.queue = j.queue
                      and p.kind = j.kind
                      and coalesce(w.seen_at + w.lease, p.lease_expires_at) > clock_timestamp())
 order by j.queue, j.kind`, l.Waiting.Milliseconds())
}

func checkCrashes(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix,
			Why: "their process died under them, or was silent for longer than its lease: each such attempt is run again beside what is left of the first"}
	}, `select count(*) || ' jobs of kind ' || j.kind || ' in queue ' || j.queue || ' have lost their worker, up to ' || max(j.crashes) || ' times',
       'look for the out-of-memory killer and for pauses of the process; if it was alive, raise Lease above its longest pause; pawl jobs list --queue '
         || quote_literal(j.queue) || ' --kind ' || quote_literal(j.kind)
  from pawl.job as j
 where j.crashes > 0
 group by j.queue, j.kind
 order by j.queue, j.kind`)
}

func checkRetention(ctx context.Context, db DB, l Limits) ([]Finding, error) {
	return findings(ctx, db, func(what, fix string) Finding {
		return Finding{What: what, Fix: fix, Why: "nobody purges: the table grows without bound"}
	}, `select 'pawl.' || t.name || ' has rows whose memory has been over for ' || $1::bigint / 3600000 || ' hours', 'run every hour: pawl purge --table ' || t.name || ' --yes'
  from (
    select 'command' as name
     where exists (select from pawl.command as c
                    where c.expires_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and c.created_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and c.status in ('succeeded', 'failed_final'))
     union all
    select 'job_key'
     where exists (select from pawl.job_key as k
                    where k.expires_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and k.created_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and not exists (select from pawl.job as j where j.id = k.job_id))
     union all
    select 'effect'
     where exists (select from pawl.effect as e
                    where e.expires_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and e.created_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      and e.status in ('succeeded', 'failed_final'))) as t`, l.Overdue.Milliseconds())
}
