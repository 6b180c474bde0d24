package act

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func locked(ctx context.Context, tx pgx.Tx, id string, cents int) error {
	var balance int
	if err := tx.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = $1 FOR UPDATE", id).Scan(&balance); err != nil {
		return err
	}
	if balance < cents {
		return errPoor
	}
	_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance - $2 WHERE id = $1", id, cents)
	return err
}

func onConflict(ctx context.Context, tx pgx.Tx, id string) error {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM payments WHERE id = $1)", id).Scan(&there); err != nil {
		return err
	}
	if there {
		return nil
	}
	_, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1) ON CONFLICT (id) DO NOTHING", id)
	return err
}

func advisory(ctx context.Context, tx pgx.Tx, id string) error {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", id); err != nil {
		return err
	}
	var n int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM seats WHERE show = $1", id).Scan(&n); err != nil {
		return err
	}
	if n >= 100 {
		return errPoor
	}
	_, err := tx.Exec(ctx, "INSERT INTO seats (show) VALUES ($1)", id)
	return err
}

func (w *worker) serializable(ctx context.Context, id string) error {
	tx, err := w.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	var n int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM seats WHERE show = $1", id).Scan(&n); err != nil {
		return err
	}
	if n >= 100 {
		return errPoor
	}
	if _, err := tx.Exec(ctx, "INSERT INTO seats (show) VALUES ($1)", id); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func (w *worker) serializableSQL(ctx context.Context, id string) error {
	tx, err := w.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := insert(ctx, tx, id); err != nil {
		return err
	}
	return tx.Commit()
}

// Its caller sets the level.
func insert(ctx context.Context, tx *sql.Tx, id string) error {
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM seats WHERE show = $1", id).Scan(&n); err != nil {
		return err
	}
	if n >= 100 {
		return errPoor
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO seats (show) VALUES ($1)", id)
	return err
}

// The condition stands in the statement again.
func conditional(ctx context.Context, tx pgx.Tx, id string) error {
	var status string
	if err := tx.QueryRow(ctx, "SELECT status FROM orders WHERE id = $1", id).Scan(&status); err != nil {
		return err
	}
	if status != "open" {
		return nil
	}
	_, err := tx.Exec(ctx, "UPDATE orders SET status = 'paid' WHERE id = $1 AND status = 'open'", id)
	return err
}

// A table decides about another.
func other(ctx context.Context, tx pgx.Tx, id string) error {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM customers WHERE id = $1)", id).Scan(&there); err != nil {
		return err
	}
	if !there {
		return errPoor
	}
	_, err := tx.Exec(ctx, "INSERT INTO orders (customer) VALUES ($1)", id)
	return err
}

// An error is no decision.
func plain(ctx context.Context, tx pgx.Tx, id string) error {
	var parent string
	if err := tx.QueryRow(ctx, "SELECT parent FROM orders WHERE id = $1", id).Scan(&parent); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "INSERT INTO orders (id, parent) VALUES ($1, $2)", id, parent)
	return err
}

// The unique constraint is expected to refuse.
func constrained(ctx context.Context, tx pgx.Tx, id string) error {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM payments WHERE id = $1)", id).Scan(&there); err != nil {
		return err
	}
	if there {
		return nil
	}
	_, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", id)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "23505" {
		return errPoor
	}
	return err
}

// The row only has to be there.
func found(ctx context.Context, tx pgx.Tx, id string) error {
	var n int
	err := tx.QueryRow(ctx, "SELECT 1 FROM orders WHERE id = $1", id).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		return errPoor
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE orders SET note = 'x' WHERE id = $1", id)
	return err
}

// Rows are copied, and none decides.
func copied(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, "SELECT id FROM orders WHERE parent IS NULL")
	if err != nil {
		return err
	}
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	rows.Close()
	_, err = tx.Exec(ctx, "INSERT INTO orders (parent) SELECT unnest($1::text[])", ids)
	return err
}

func isUnique(err error) bool { return err != nil }

func asked(ctx context.Context, tx pgx.Tx, id string) error {
	var n int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM payments WHERE id = $1", id).Scan(&n); err != nil {
		return err
	}
	if n > 0 {
		return errPoor
	}
	_, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", id)
	if isUnique(err) {
		return errPoor
	}
	return err
}

// A time that is set twice does no harm.
func stamped(ctx context.Context, tx pgx.Tx, id string) error {
	var done sql.NullTime
	if err := tx.QueryRow(ctx, "SELECT completed_at, next_day FROM runs WHERE id = $1", id).Scan(&done); err != nil {
		return err
	}
	if done.Valid {
		return nil
	}
	_, err := tx.Exec(ctx, "UPDATE runs SET completed_at = now(), next_day = NULL WHERE id = $1", id)
	return err
}
