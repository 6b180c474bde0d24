package txn

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/verdict"
)

// After user code, Pawl restores the role, timeouts and search path with which the transaction
// began. Its own statements must not depend on settings of user code (package guard, for example,
// writes to a user's table). User code may SET LOCAL ROLE, as row level security per tenant
// requires, without granting that role anything of Pawl's.
//
// The client does not learn of a changed role, which a function can also set. So keepRole stores
// the role on the server before user code runs, and restoreRole restores it each time. Both travel
// with statements that are sent anyway. PostgreSQL lets any role switch back to a role of the
// session user.
const (
	keepRole = `select pg_catalog.set_config('pawl.begin_role', pg_catalog.current_setting('role'), true),
       pg_catalog.set_config('pawl.begin_statement_timeout', pg_catalog.current_setting('statement_timeout'), true),
       pg_catalog.set_config('pawl.begin_lock_timeout', pg_catalog.current_setting('lock_timeout'), true),
       pg_catalog.set_config('pawl.begin_search_path', pg_catalog.current_setting('search_path'), true)`
	// The values are restored for the session, so that a SET without LOCAL leaves nothing behind
	// either. After RESET ALL a stored value is empty; RESET ALL does not reset the role.
	restoreRole = `select pg_catalog.set_config(n.name, n.value, false)
  from (values (1, 'statement_timeout', pg_catalog.current_setting('pawl.begin_statement_timeout', true)),
               (2, 'lock_timeout', pg_catalog.current_setting('pawl.begin_lock_timeout', true)),
               (3, 'search_path', pg_catalog.current_setting('pawl.begin_search_path', true)),
               (4, 'role', pg_catalog.current_setting('pawl.begin_role', true))) as n (place, name, value)
 where n.value operator(pg_catalog.<>) ''
   and n.value operator(pg_catalog.<>) pg_catalog.current_setting(n.name)
 order by n.place`
)

// fireDeferred is sent before the role is restored. Before PostgreSQL 18, deferred triggers run as
// the current role, and triggers on user code's rows must not run with Pawl's role.
const fireDeferred = "set constraints all immediate"

// restore returns the statements that restore the settings after user code. now holds the settings
// that are in force.
func (s settings) restore(now settings) []string {
	texts := []string{fireDeferred}
	for i, name := range reported {
		switch name {
		// no statement of Pawl's depends on them
		case "application_name", "default_transaction_read_only", "search_path":
			continue
		}
		if now[i] != s[i] {
			texts = append(texts, "set local "+name+" = '"+strings.ReplaceAll(s[i], "'", "''")+"'")
		}
	}
	return append(texts, restoreRole)
}

// ready returns Pawl's statements own, preceded by the release of a succeeded savepoint and the
// statements that restore settings. If the driver would prepare own under user code's role, ready
// sends those statements first in a message of their own. If own is empty, only the release is
// returned.
func (o *Opened) ready(ctx context.Context, own *pgx.Batch) (*pgx.Batch, error) {
	batch := &pgx.Batch{}
	if o.savepoint == savepointSucceeded {
		batch.Queue(releaseSavepoint)
	}
	o.savepoint = savepointNone
	if own.Len() == 0 {
		return batch, nil
	}
	if o.userCodeRan {
		o.userCodeRan = false
		conn := o.Tx.Conn()
		restore := o.before.restore(settingsOf(conn.PgConn()))
		for _, text := range restore {
			batch.Queue(text)
		}
		if p := plansOf(conn); len(restore) > 2 || !p.have(own) {
			if err := o.flush(ctx, batch); err != nil {
				return nil, err
			}
			if err := p.add(ctx, conn, own); err != nil {
				return nil, err
			}
			batch = &pgx.Batch{}
		}
	}
	batch.QueuedQueries = append(batch.QueuedQueries, own.QueuedQueries...)
	return batch, nil
}

// put restores the settings before a single statement of Pawl's.
func (o *Opened) put(ctx context.Context) error {
	if !o.userCodeRan {
		return nil
	}
	o.userCodeRan = false
	batch := &pgx.Batch{}
	for _, text := range o.before.restore(settingsOf(o.Tx.Conn().PgConn())) {
		batch.Queue(text)
	}
	return o.judged(o.flush(ctx, batch))
}

// Exec executes a statement of Pawl's; see ready.
func (o *Opened) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := o.put(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := o.Tx.Exec(ctx, sql, args...)
	return tag, o.judged(err)
}

// Query sends a query of Pawl's; see ready.
func (o *Opened) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := o.put(ctx); err != nil {
		return refused(err).Query()
	}
	rows, err := o.Tx.Query(ctx, sql, args...)
	return ownRows{rows, o}, o.judged(err)
}

// QueryRow sends a query of Pawl's that returns one row; see ready.
func (o *Opened) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if !o.userCodeRan {
		return ownRow{o.Tx.QueryRow(ctx, sql, args...), nil, o}
	}
	own := &pgx.Batch{}
	own.Queue(sql, args...)
	batch, err := o.ready(ctx, own)
	if err != nil {
		return refused(o.judged(err)).QueryRow()
	}
	results := o.Tx.SendBatch(ctx, batch)
	for range batch.Len() - 1 {
		if _, err := results.Exec(); err != nil {
			_ = results.Close()
			if endedText(err) {
				err = endedByText(err)
			}
			return refused(o.judged(err)).QueryRow()
		}
	}
	return ownRow{results.QueryRow(), results, o}
}

// SendBatch sends a batch of Pawl's statements; see ready.
func (o *Opened) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := o.put(ctx); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return ownResults{o.Tx.SendBatch(ctx, b), o}
}

// Begin begins a nested transaction for Pawl's statements.
func (o *Opened) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := o.put(ctx); err != nil {
		return nil, err
	}
	return o.Tx.Begin(ctx)
}

type ownRows struct {
	pgx.Rows
	of *Opened
}

func (r ownRows) Err() error { return r.of.judged(r.Rows.Err()) }

type ownRow struct {
	pgx.Row
	results pgx.BatchResults // of which this row is the last; nil if the query was sent alone
	of      *Opened
}

func (r ownRow) Scan(into ...any) error {
	err := r.Row.Scan(into...)
	if r.results != nil {
		if closed := r.results.Close(); err == nil {
			err = closed
		}
	}
	return r.of.judged(err)
}

type ownResults struct {
	pgx.BatchResults
	of *Opened
}

func (r ownResults) Close() error { return r.of.judged(r.BatchResults.Close()) }

// refused names the setting of user code that made a statement of Pawl's fail; see [Refusal].
func (o *Opened) refused(err error) error {
	if !o.wasLent {
		return err
	}
	return Refusal(err)
}

// judged applies refused and blame to err. Do not use it for a message that ends with COMMIT, whose
// errors leave the outcome open.
func (o *Opened) judged(err error) error {
	if err == nil {
		return nil
	}
	return o.blame(context.Background(), o.refused(err))
}

var errReadOnly = errors.New("the handler made its transaction read-only (transaction_read_only), and Pawl writes in it, too")

// Refusal names the setting of user code that made a statement of Pawl's fail in the same
// transaction. Only user code can be the cause: a server does not become read-only within a
// transaction that has written.
func Refusal(err error) error {
	if pawl.CodeOf(err) != verdict.ReadOnly || errors.Is(err, errReadOnly) {
		return err
	}
	return &pawl.Error{Op: "handler", Code: pawl.CodeTransactionLost, Err: errors.Join(ErrLost, errReadOnly, err),
		Hint: "leave SET TRANSACTION READ ONLY out, or read on another connection"}
}

// plans are the statements of Pawl's behind user code that a connection has prepared. The driver
// prepares all others in a separate message before it sends them.
type plans struct {
	mode  pgx.QueryExecMode
	texts map[string]struct{}
}

const plansKey = "github.com/pawl-go/pawl/plans"

func plansOf(conn *pgx.Conn) *plans {
	p, there := conn.PgConn().CustomData()[plansKey].(*plans)
	if !there {
		p = &plans{mode: conn.Config().DefaultQueryExecMode, texts: map[string]struct{}{}}
		conn.PgConn().CustomData()[plansKey] = p
	}
	return p
}

// have reports whether the batch can be sent without preparing or describing any statement first.
func (p *plans) have(batch *pgx.Batch) bool {
	for _, q := range batch.QueuedQueries {
		if _, there := p.texts[q.SQL]; !there && p.mode != pgx.QueryExecModeExec && p.mode != pgx.QueryExecModeSimpleProtocol && q.SQL != setSavepoint {
			return false
		}
	}
	return true
}

// add prepares the statements of a batch permanently. The driver's own cache would evict them.
func (p *plans) add(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch) error {
	if p.mode != pgx.QueryExecModeCacheStatement {
		return nil
	}
	for _, q := range batch.QueuedQueries {
		if _, err := conn.Prepare(ctx, q.SQL, q.SQL); err != nil {
			return err
		}
		p.texts[q.SQL] = struct{}{}
	}
	return nil
}

// keep prepares the statements again if other code has deallocated them. Normally it sends nothing.
func (p *plans) keep(ctx context.Context, conn *pgx.Conn) error {
	for text := range p.texts {
		if _, err := conn.Prepare(ctx, text, text); err != nil {
			return err
		}
	}
	return nil
}
