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

// Pawl's statements behind user code are sent as those before it were: under the role that the
// transaction began with, and with its timeouts and search path (package guard writes to a table of
// the user's), whatever user code has set for its own statements. User code may SET LOCAL ROLE, as
// row level security per tenant needs it, and grants that role nothing of Pawl's.
//
// Nothing tells a client of another role, which a function can set, too. So keepRole notes the role
// on the server, before user code, and restoreRole puts it back each time. Both travel with
// statements that are sent anyway. PostgreSQL lets any role go back to one of the session user's.
const (
	keepRole = `select pg_catalog.set_config('pawl.begin_role', pg_catalog.current_setting('role'), true),
       pg_catalog.set_config('pawl.begin_statement_timeout', pg_catalog.current_setting('statement_timeout'), true),
       pg_catalog.set_config('pawl.begin_lock_timeout', pg_catalog.current_setting('lock_timeout'), true),
       pg_catalog.set_config('pawl.begin_search_path', pg_catalog.current_setting('search_path'), true)`
	// What is put back holds for the session, so that SET without LOCAL leaves nothing behind
	// either. A value is empty behind RESET ALL, which does not reset the role.
	restoreRole = `select pg_catalog.set_config(n.name, n.value, false)
  from (values (1, 'statement_timeout', pg_catalog.current_setting('pawl.begin_statement_timeout', true)),
               (2, 'lock_timeout', pg_catalog.current_setting('pawl.begin_lock_timeout', true)),
               (3, 'search_path', pg_catalog.current_setting('pawl.begin_search_path', true)),
               (4, 'role', pg_catalog.current_setting('pawl.begin_role', true))) as n (place, name, value)
 where n.value operator(pg_catalog.<>) ''
   and n.value operator(pg_catalog.<>) pg_catalog.current_setting(n.name)
 order by n.place`
)

// fireDeferred is sent before the role is put back: until PostgreSQL 18, deferred triggers run as
// the role of the moment, and those of user code's rows must not gain Pawl's.
const fireDeferred = "set constraints all immediate"

// restore returns the statements that put back what user code has changed, now being the settings
// behind it.
func (s settings) restore(now settings) []string {
	texts := []string{fireDeferred}
	for i, name := range reported {
		switch name {
		case "application_name", "default_transaction_read_only", "search_path": // no statement of Pawl's depends on them
			continue
		}
		if now[i] != s[i] {
			texts = append(texts, "set local "+name+" = '"+strings.ReplaceAll(s[i], "'", "''")+"'")
		}
	}
	return append(texts, restoreRole)
}

// ready returns own, statements of Pawl's, behind the release of a savepoint that user code has
// passed, and behind what puts its settings back. That goes ahead, in a message of its own, if the
// driver would otherwise prepare own under the role of user code. Without own it is the release.
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

// put puts the settings back before a statement of Pawl's that is sent by itself.
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

// Exec is a statement of Pawl's.
func (o *Opened) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := o.put(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := o.Tx.Exec(ctx, sql, args...)
	return tag, o.judged(err)
}

// Query is a statement of Pawl's.
func (o *Opened) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := o.put(ctx); err != nil {
		return refused(err).Query()
	}
	rows, err := o.Tx.Query(ctx, sql, args...)
	return ownRows{rows, o}, o.judged(err)
}

// QueryRow is a statement of Pawl's.
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

// SendBatch is statements of Pawl's.
func (o *Opened) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := o.put(ctx); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return ownResults{o.Tx.SendBatch(ctx, b), o}
}

// Begin begins a transaction that is nested in this one, for statements of Pawl's.
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
	results pgx.BatchResults // that it is the last of; nil if it was sent by itself
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

// refused names the setting that stopped a statement of Pawl's behind user code; see [Refusal].
func (o *Opened) refused(err error) error {
	if !o.wasLent {
		return err
	}
	return Refusal(err)
}

// judged is refused, and says whether the transaction was lost alone. It is not asked of a message
// that ends with COMMIT, whose errors leave open whether it took effect.
func (o *Opened) judged(err error) error {
	if err == nil {
		return nil
	}
	return o.blame(context.Background(), o.refused(err))
}

var errReadOnly = errors.New("the handler made its transaction read-only (transaction_read_only), and Pawl writes in it, too")

// Refusal names the setting of user code that stopped a statement of Pawl's in the same
// transaction. A server does not become read-only within a transaction that has written.
func Refusal(err error) error {
	if pawl.CodeOf(err) != verdict.ReadOnly || errors.Is(err, errReadOnly) {
		return err
	}
	return &pawl.Error{Op: "handler", Code: pawl.CodeTransactionLost, Err: errors.Join(ErrLost, errReadOnly, err),
		Hint: "leave SET TRANSACTION READ ONLY out, or read on another connection"}
}

// plans are what a connection has prepared of Pawl's statements behind user code. The driver
// prepares others, in a message of its own, before what is sent with them.
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

// have reports whether nothing of the batch would be prepared, or described, before it is sent.
func (p *plans) have(batch *pgx.Batch) bool {
	for _, q := range batch.QueuedQueries {
		if _, there := p.texts[q.SQL]; !there && p.mode != pgx.QueryExecModeExec && p.mode != pgx.QueryExecModeSimpleProtocol && q.SQL != setSavepoint {
			return false
		}
	}
	return true
}

// add prepares the statements of a batch, to stay: the driver's own cache would forget them.
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

// keep prepares again what other code has deallocated; as a rule nothing is sent.
func (p *plans) keep(ctx context.Context, conn *pgx.Conn) error {
	for text := range p.texts {
		if _, err := conn.Prepare(ctx, text, text); err != nil {
			return err
		}
	}
	return nil
}
