package migrate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/engine"
	"github.com/pawl-go/pawl/internal/script"
	"github.com/pawl-go/pawl/schema"
)

// The migrators' lock, in Pawl's half of the two-key advisory space ('pawl' in ASCII).
const lockSpace, lockNumber = 1885435756, 2

// lockPoll is how often a waiting migrator tries the lock.
const lockPoll = 50 * time.Millisecond

// Progress receives a line of text for each step. It may be nil.
type Progress func(line string)

func (p Progress) say(format string, args ...any) {
	if p != nil {
		p(fmt.Sprintf(format, args...))
	}
}

// Up migrates the database to the newest version, one transaction a version, and returns the
// applied versions. If the tables are current but the functions are not, it replaces the functions.
// It also raises sequences that are behind the rows, as after logical replication. Several calls
// may run at once: one migrates, and the others wait and find nothing left to do.
//
// A newer schema that supports this build stays unchanged, without an error: in a rolling deploy,
// an older program may start after a newer one has migrated.
//
// Errors: [pawl.ErrSchemaMismatch] for a newer schema that does not support this build, as [Check]
// returns. Code 0A000, with the reason, for a server that is not PostgreSQL or lacks a feature.
func Up(ctx context.Context, conn *pgx.Conn, progress Progress) (applied []int, err error) {
	if err := engine.Refuse(ctx, conn); err != nil {
		return nil, pawl.Wrap("migrate.up", err)
	}
	err = locked(ctx, conn, progress, func() error {
		applied, err = up(ctx, conn, progress)
		return err
	})
	return applied, owned("migrate.up", err)
}

// owned adds a hint for a missing privilege, because migrating requires the owner's rights.
func owned(op string, err error) error {
	if pawl.CodeOf(err) != "42501" {
		return pawl.Wrap(op, err)
	}
	if inner := (*pawl.Error)(nil); errors.As(err, &inner) { // its hint is for programs
		err = inner.Err
	}
	return &pawl.Error{Op: op, Code: "42501", Err: err,
		Hint: "migrate as the owner of the schemas pawl and pawl_v1; to create them, the role needs CREATE on this database; or run: create schema pawl authorization ROLE; create schema pawl_v1 authorization ROLE"}
}

func up(ctx context.Context, conn *pgx.Conn, progress Progress) ([]int, error) {
	installed, err := read(ctx, conn)
	if err != nil {
		return nil, err
	}
	if installed.Version > schema.Newest() {
		return nil, fits(installed)
	}
	var applied []int
	for _, v := range schema.Versions() {
		if v.Number <= installed.Version {
			continue
		}
		progress.say("applying %04d_%s", v.Number, v.Name)
		if err := inTx(ctx, conn, v.Script()); err != nil {
			return applied, fmt.Errorf("version %d (%s): %w", v.Number, v.Name, err)
		}
		applied = append(applied, v.Number)
	}
	if installed.Version == schema.Newest() && installed.APIHash != apiHash() {
		progress.say("replacing the functions of version %04d", installed.Version)
		if err := inTx(ctx, conn, script.ReplaceAPI(schema.API(), installed.Version)); err != nil {
			return applied, err
		}
	}
	return applied, raiseSequences(ctx, conn, progress)
}

// raiseSequences raises each sequence that is behind the rows. That happens after logical
// replication, which copies only rows.
func raiseSequences(ctx context.Context, conn *pgx.Conn, progress Progress) error {
	const raise = "select b.sequence, b.held, pg_catalog.setval(b.sequence::pg_catalog.regclass, b.held) from pawl_v1._sequences_behind(null) as b"
	behind, err := behindOf(ctx, conn)
	if err != nil || behind == "" {
		return err
	}
	rows, err := conn.Query(ctx, raise)
	if err != nil {
		return err
	}
	var (
		sequence   string
		held, last int64
	)
	_, err = pgx.ForEachRow(rows, []any{&sequence, &held, &last}, func() error {
		progress.say("raising %s to %d", sequence, held)
		return nil
	})
	return err
}

// behindOf returns the names of the sequences that are behind, or "".
func behindOf(ctx context.Context, db Querier) (names string, err error) {
	err = db.QueryRow(ctx, "select coalesce(pg_catalog.string_agg(b.sequence, ', ' order by b.sequence), '') from pawl_v1._sequences_behind() as b").Scan(&names)
	return names, err
}

// Down takes the database back to version to, and deletes the data of later versions. 0 removes
// everything of Pawl's. It returns the removed versions.
//
// Errors: [pawl.ErrArgumentInvalid] unless to lies between 0 and the installed version;
// [pawl.ErrSchemaMismatch] if this build does not know the installed version. PostgreSQL refuses a
// version on which objects of yours depend, such as views; the versions after it are removed.
func Down(ctx context.Context, conn *pgx.Conn, to int, progress Progress) (removed []int, err error) {
	err = locked(ctx, conn, progress, func() error {
		removed, err = down(ctx, conn, to, progress)
		return err
	})
	return removed, owned("migrate.down", err)
}

func down(ctx context.Context, conn *pgx.Conn, to int, progress Progress) ([]int, error) {
	installed, err := read(ctx, conn)
	if err != nil {
		return nil, err
	}
	if to < 0 || to > installed.Version {
		return nil, &pawl.Error{Op: "migrate.down", Code: pawl.CodeArgumentInvalid,
			Err: fmt.Errorf("the target must lie between 0 and the installed version %d, it is %d", installed.Version, to)}
	}
	if newest := schema.Newest(); installed.Version > newest {
		return nil, &pawl.Error{Op: "migrate.down", Code: pawl.CodeSchemaMismatch,
			Err:  fmt.Errorf("the schema is at version %d, and this build can remove versions up to %d only", installed.Version, newest),
			Hint: "run it with the newer build, which installed the schema"}
	}
	versions := schema.Versions()
	var removed []int
	for i := len(versions) - 1; i >= 0; i-- {
		v := versions[i]
		if v.Number > installed.Version || v.Number <= to {
			continue
		}
		progress.say("removing %04d_%s", v.Number, v.Name)
		if err := inTx(ctx, conn, v.DownScript()); err != nil {
			return removed, fmt.Errorf("version %d (%s): %w", v.Number, v.Name, err)
		}
		removed = append(removed, v.Number)
	}
	return removed, nil
}

// inTx runs a script of several statements in one transaction. It waits at most 5 s for any lock.
// Otherwise a migration queued behind a long transaction would stop the workers queued behind the
// migration (trap T29).
func inTx(ctx context.Context, conn *pgx.Conn, script string) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockTimeout); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, script)
		return err
	})
}

// direct refuses a pooler that switches sessions. The lock would stay in one of them and block
// every later migration.
func direct(ctx context.Context, conn *pgx.Conn) error {
	_, err := conns.CheckPooler(ctx, conn, func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, conn.Config()) })
	if errors.Is(err, conns.ErrPooler) {
		return &pawl.Error{Op: "migrate", Err: err, Hint: "migrate over a direct connection to the server"}
	}
	return err
}

// locked runs fn while it holds the migrators' lock.
func locked(ctx context.Context, conn *pgx.Conn, progress Progress, fn func() error) (err error) {
	if err := direct(ctx, conn); err != nil {
		return err
	}
	for said := false; ; {
		var got bool
		if err := conn.QueryRow(ctx, "select pg_catalog.pg_try_advisory_lock($1, $2)", lockSpace, lockNumber).Scan(&got); err != nil {
			return err
		}
		if got {
			break
		}
		if !said {
			progress.say("another migration is running; waiting for it")
			said = true
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for another migration: %w", ctx.Err())
		case <-time.After(lockPoll):
		}
	}
	defer func() {
		unlock := context.WithoutCancel(ctx)
		if _, e := conn.Exec(unlock, "select pg_catalog.pg_advisory_unlock($1, $2)", lockSpace, lockNumber); e != nil && err == nil {
			err = fmt.Errorf("releasing the migration lock: %w", e)
		}
	}()
	return fn()
}

// Installed describes the schema in a database.
type Installed struct {
	Version   int       // 0: no schema
	MinClient int       // the oldest client version that it supports
	APIHash   string    // of the functions
	AppliedAt time.Time // of the newest version
}

// Status returns the schema in the database. A database without Pawl has version 0.
func Status(ctx context.Context, db Querier) (Installed, error) {
	installed, err := read(ctx, db)
	return installed, pawl.Wrap("migrate.status", err)
}

// Querier runs a query; *pgx.Conn, *pgxpool.Pool and pgx.Tx implement it.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func read(ctx context.Context, db Querier) (Installed, error) {
	var i Installed
	err := db.QueryRow(ctx, `select m.version, m.min_client, m.api_hash, m.applied_at
  from pawl.migration as m
 order by m.version desc
 limit 1`).Scan(&i.Version, &i.MinClient, &i.APIHash, &i.AppliedAt)
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows): // removed, or hidden by row level security
		return Installed{}, unhidden(ctx, db)
	// no such table or schema
	case errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000"):
		return Installed{}, nil
	case errors.As(err, &pg) && pg.Code == "42501":
		return Installed{}, &pawl.Error{Op: "migrate.status", Code: "42501", Err: err,
			Hint: "grant pawl_app to the login; `pawl migrate up --roles` makes it; if the session has another role from its beginning (SET ROLE in AfterConnect, the setting role of the login), " +
				"grant pawl_app to that role, or set it in your transactions alone"}
	}
	return i, err
}

// Check returns nil if this build works with the database. A newer schema is accepted as long as it
// supports this build, so that a rolling deploy can migrate first.
//
// Errors: [pawl.ErrSchemaMismatch], with the next step, if the schema is missing, too old, or does
// not support this build. The same error if sequences are behind the rows, if row level security
// hides rows of Pawl's tables from this role, or if bytea_output makes the driver misread bytes. If
// there is no schema and the server is not PostgreSQL: code 0A000.
func Check(ctx context.Context, db Querier) error {
	installed, err := read(ctx, db)
	switch {
	case pawl.Unreachable(err):
		return &pawl.Error{Op: "migrate.check", Code: pawl.CodeOf(err), Err: err, Hint: "start the server, or correct the URL of the database"}
	case err != nil:
		return pawl.Wrap("migrate.check", err)
	}
	if installed.Version == 0 {
		if err := engine.Refuse(ctx, db); err != nil {
			return pawl.Wrap("migrate.check", err)
		}
	}
	if err := fits(installed); err != nil {
		return err
	}
	if err := unhidden(ctx, db); err != nil {
		return pawl.Wrap("migrate.check", err)
	}
	if err := readable(ctx, db); err != nil {
		return err
	}
	switch behind, err := behindOf(ctx, db); {
	case pawl.CodeOf(err) == "42501":
		return nil // this role may not read Pawl's tables
	case err != nil:
		return pawl.Wrap("migrate.check", err)
	case behind != "":
		return mismatch("run: pawl migrate up, before anything else runs", "%s would assign numbers again that the tables hold, as after logical replication", behind)
	}
	return nil
}

// fits returns nil if this build works with the installed schema.
func fits(installed Installed) error {
	newest := schema.Newest()
	switch {
	case installed.Version == 0:
		return mismatch("run: pawl migrate up", "Pawl's schema is not installed in this database")
	case installed.Version < newest:
		return mismatch("run: pawl migrate up", "the schema is at version %d, this build needs %d; missing: %s",
			installed.Version, newest, missing(installed.Version))
	case installed.MinClient > newest:
		return mismatch("deploy a newer build of this program",
			"the schema is at version %d and needs clients of version %d or later; this build is version %d",
			installed.Version, installed.MinClient, newest)
	case installed.Version == newest && installed.APIHash != apiHash():
		return mismatch("run: pawl migrate up, with the build you deploy",
			"the functions of schema version %d differ from those of this build", installed.Version)
	}
	return nil
}

var apiHash = sync.OnceValue(func() string { return script.Hash(schema.API()) })

func missing(installed int) string {
	list := ""
	for _, v := range schema.Versions() {
		if v.Number > installed {
			list += fmt.Sprintf(" %04d_%s", v.Number, v.Name)
		}
	}
	return list[1:]
}

func mismatch(hint, format string, args ...any) error {
	return &pawl.Error{Op: "migrate.check", Code: pawl.CodeSchemaMismatch, Err: fmt.Errorf(format, args...), Hint: hint}
}
