package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
)

func checkDurability(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		Scope   string `json:"scope"` // "session", "role setting" or "server"
		Setting string `json:"setting"`
		Target  string `json:"target"`
	}
	return findings(ctx, db, "durability", func(f fact) Finding {
		found := Finding{Why: "a server crash may lose commits that were answered: their effects and inbox rows are gone, and the broker has deleted the messages"}
		switch f.Scope {
		case "session":
			found.What, found.Fix = f.Setting+" is off here", "turn it on: alter database "+f.Target+" set synchronous_commit = on"
		case "role setting":
			found.What, found.Fix = f.Setting+" is off for "+f.Target, "turn it on: alter "+f.Target+" set synchronous_commit = on"
		case "server":
			found.What, found.Fix = f.Setting+" is off", "turn it on in postgresql.conf"
		}
		return found
	})
}

// checkTimeouts finds settings that end Pawl's statements and sessions. It cannot see those of a
// pooler, such as pgbouncer's query_timeout.
func checkTimeouts(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		Setting string `json:"setting"`
		Target  string `json:"target"` // empty: the server
		Value   string `json:"value"`
		Needs   string `json:"needs_ms"`
	}
	return findings(ctx, db, "timeouts", func(f fact) Finding {
		what, fix := fmt.Sprintf("%s is %s on this server", f.Setting, f.Value), "alter system reset "+f.Setting
		if f.Target != "" {
			what, fix = fmt.Sprintf("%s is %s for %s", f.Setting, f.Value, f.Target), fmt.Sprintf("alter %s reset %s", f.Target, f.Setting)
		}
		return Finding{What: what, Fix: fmt.Sprintf("%s, or set it to %s ms or more", fix, f.Needs),
			Why: "it ends statements or sessions of handlers and of Pawl that would have succeeded: the attempts are charged, and run again"}
	})
}

// poolerProbes is how often the session id of a handle is read that is no *pgx.Conn.
const poolerProbes = 8

// checkPooler checks the doctor's own connection and the workers' reports about theirs.
func checkPooler(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		ID   int64  `json:"worker_id"`
		Name string `json:"worker_name"`
	}
	found, err := findings(ctx, db, "presence", func(f fact) Finding {
		return Finding{What: fmt.Sprintf("worker %d (%s) keeps its presence through a pooler in transaction or statement mode", f.ID, f.Name),
			Why: "it holds no presence lock: if its process is killed, its jobs wait for the lease, and until then it counts as alive. No enqueue wakes it: new jobs wait for its next poll",
			Fix: "set Presence.URL of that program to a direct connection, or Presence.Off"}
	})
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
func changesSession(ctx context.Context, db pawl.DB) (bool, error) {
	if conn, ok := db.(*pgx.Conn); ok {
		_, err := conns.CheckPooler(ctx, conn, func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, conn.Config()) })
		if errors.Is(err, conns.ErrPooler) {
			return true, nil
		}
		return false, err
	}
	if _, inTx := db.(pawl.Tx); inTx {
		return false, nil // a transaction always keeps its session
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

func checkSnapshots(ctx context.Context, db pawl.DB, l Limits) ([]Finding, error) {
	const why = "vacuum removes no row that died since: claims read more and more dead rows, and tables grow"
	type session struct {
		PID         int       `json:"pid"`
		User        string    `json:"username"`
		Application string    `json:"application_name"`
		Since       time.Time `json:"since"`
		State       string    `json:"state"`
	}
	type slot struct {
		Name         string `json:"name"`
		Transactions int64  `json:"transactions"`
		Active       bool   `json:"active"`
	}
	found, err := findings(ctx, db, "transactions", func(s session) Finding {
		who := s.User
		if s.Application != "" {
			who += " (" + s.Application + ")"
		}
		return Finding{Why: why, What: fmt.Sprintf("session %d of %s has had a transaction open since %s, and is %s", s.PID, who, second(s.Since), s.State),
			Fix: fmt.Sprintf("end it: select pg_terminate_backend(%d); then set idle_in_transaction_session_timeout for that program", s.PID)}
	}, l.Transaction.Milliseconds())
	return both(found, err, func() ([]Finding, error) {
		return findings(ctx, db, "slots", func(s slot) Finding {
			what := fmt.Sprintf("replication slot %s holds %d transactions back", s.Name, s.Transactions)
			if !s.Active {
				what += ", and has no reader"
			}
			return Finding{Why: why, What: what, Fix: "bring its reader back, or: select pg_drop_replication_slot(" + literal(s.Name) + ")"}
		})
	})
}

func checkPrepared(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		GID   string    `json:"gid"`
		Owner string    `json:"owner"`
		Since time.Time `json:"since"`
	}
	return findings(ctx, db, "prepared", func(f fact) Finding {
		gid := literal(f.GID)
		return Finding{What: fmt.Sprintf("prepared transaction %s of %s is open since %s", gid, f.Owner, second(f.Since)),
			Why: "it holds its locks and its snapshot until it is ended, also after a restart: keys, lanes and jobs it has touched stand still. Pawl does not support PREPARE TRANSACTION",
			Fix: "commit prepared " + gid + ", or rollback prepared " + gid}
	})
}

func checkVacuum(ctx context.Context, db pawl.DB, l Limits) ([]Finding, error) {
	type fact struct {
		Table string `json:"table_name"` // empty: the whole server
		Dead  int64  `json:"dead_rows"`  // 0: autovacuum is off
	}
	return findings(ctx, db, "vacuum", func(f fact) Finding {
		found := Finding{Why: "finished work leaves dead rows behind: claims, purges and look-ups read past them, and the tables grow"}
		switch {
		case f.Table == "":
			found.What, found.Fix = "autovacuum is off for the whole server", "turn it on: alter system set autovacuum = on; select pg_reload_conf()"
		case f.Dead == 0:
			found.What, found.Fix = "autovacuum is off for pawl."+f.Table, "alter table pawl."+f.Table+" reset (autovacuum_enabled)"
		default:
			found.What = fmt.Sprintf("pawl.%s has about %d dead rows", f.Table, f.Dead)
			found.Fix = "if a check above names an open transaction, end that first; then: vacuum pawl." + f.Table + "; and give autovacuum more workers or a shorter naptime"
		}
		return found
	}, l.DeadRows)
}

func checkIndexes(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		Name string `json:"name"`
	}
	return findings(ctx, db, "indexes", func(f fact) Finding {
		return Finding{What: "index pawl." + f.Name + " is invalid", Fix: "reindex index pawl." + f.Name,
			Why: "an invalid index is not used: claims and look-ups read the whole table, and it enforces no uniqueness"}
	})
}

func checkCollations(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	const why = "an index whose order has changed misses rows. Pawl's own keys are in collation C and safe; your business keys and unique constraints may admit duplicates"
	type loose struct {
		Table     string `json:"table_name"`
		Column    string `json:"column_name"`
		Collation string `json:"collation_name"`
	}
	type changed struct {
		Target string `json:"target"`
		MadeBy string `json:"made_by"`
		NowAt  string `json:"now_at"`
	}
	found, err := findings(ctx, db, "collations", func(f loose) Finding {
		return Finding{Why: why, What: fmt.Sprintf("column %s.%s is in collation %s and indexed", f.Table, f.Column, f.Collation),
			Fix: "bring the schema back: pawl migrate status"}
	})
	return both(found, err, func() ([]Finding, error) {
		var version int
		if err := db.QueryRow(ctx, "select pg_catalog.current_setting('server_version_num')::int").Scan(&version); err != nil || version < 150000 {
			return nil, err
		}
		return findings(ctx, db, "collation_version", func(f changed) Finding {
			now := f.NowAt
			if now == "" {
				now = "none"
			}
			return Finding{Why: why, What: fmt.Sprintf("the collation of this database was made by version %s of its library, which is now at %s", f.MadeBy, now),
				Fix: fmt.Sprintf("reindex database %s; then: alter database %[1]s refresh collation version", f.Target)}
		})
	})
}

// checkPath finds schemas of a search_path in which other roles may create objects. Pawl's own
// functions and reads set their path; the SQL of your programs and administrators may not.
func checkPath(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		Schema string `json:"schema_name"`
		Role   string `json:"role_name"` // empty: PUBLIC
	}
	return findings(ctx, db, "path", func(f fact) Finding {
		who, grantee := "role "+f.Role, f.Role
		if f.Role == "" {
			who, grantee = "PUBLIC", "public"
		}
		return Finding{What: fmt.Sprintf("%s may create objects in schema %s, which is in a search_path", who, f.Schema),
			Why: "an operator or a function created there can run in place of PostgreSQL's own in any statement that does not qualify it, with the rights of the role that sends it",
			Fix: fmt.Sprintf("revoke create on schema %s from %s; or trust it and skip this check", f.Schema, grantee)}
	})
}

// checkRowSecurity finds tables of Pawl's in which row level security may hide rows from a role
// with rights to them. The doctor's own role may see all rows.
func checkRowSecurity(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		Table string `json:"table_name"`
		Roles string `json:"roles"`
	}
	return findings(ctx, db, "row_security", func(f fact) Finding {
		return Finding{What: fmt.Sprintf("row level security hides the rows of pawl.%s from %s", f.Table, f.Roles),
			Why: "programs of that role see no jobs, keys or deliveries, so work waits, or they refuse to start; policies for your tenants must not apply to it",
			Fix: fmt.Sprintf("alter table pawl.%s disable row level security, and keep what turned it on, as an event trigger does, from schema pawl; or: create policy pawl on pawl.%[1]s using (true)", f.Table)}
	})
}
