package act

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jmoiron/sqlx"
	"gorm.io/gorm"
)

type worker struct {
	pool *pgxpool.Pool
	db   *sql.DB
}

var errPoor = errors.New("not enough")

func exists(ctx context.Context, tx pgx.Tx, id string) error {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM payments WHERE id = $1)", id).Scan(&there); err != nil {
		return err
	}
	if there {
		return nil
	}
	_, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", id) // want "SELECT on payments decides"
	return err
}

func (w *worker) noRows(ctx context.Context, id string) error {
	var n int
	err := w.db.QueryRowContext(ctx, `SELECT id FROM payments WHERE id = $1`, id).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		_, err = w.db.ExecContext(ctx, `INSERT INTO payments (id) VALUES ($1)`, id) // want "SELECT on payments decides"
	}
	return err
}

func (w *worker) noRowsEqual(ctx context.Context, tx *sql.Tx, id string) error {
	var n int
	switch err := tx.QueryRowContext(ctx, `SELECT n FROM payments WHERE id = $1`, id).Scan(&n); err {
	case nil:
		return nil
	case sql.ErrNoRows:
		_, err := tx.ExecContext(ctx, `INSERT INTO payments (id, n) VALUES ($1, 1)`, id) // want "SELECT on payments decides"
		return err
	default:
		return err
	}
}

func count(ctx context.Context, tx *sqlx.Tx, id string) error {
	var n int
	if err := tx.GetContext(ctx, &n, "SELECT count(*) FROM seats WHERE show = $1", id); err != nil {
		return err
	}
	if n >= 100 {
		return errPoor
	}
	_, err := tx.NamedExecContext(ctx, "INSERT INTO seats (show) VALUES (:show)", id) // want "SELECT on seats decides"
	return err
}

func balance(ctx context.Context, tx pgx.Tx, id string, cents int) error {
	var balance int
	if err := tx.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = $1", id).Scan(&balance); err != nil {
		return err
	}
	if balance < cents {
		return errPoor
	}
	_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance - $2 WHERE id = $1", id, cents) // want "SELECT on accounts decides"
	return err
}

func (w *worker) paid(ctx context.Context, id string) (bool, error) {
	var n int
	err := w.pool.QueryRow(ctx, "SELECT count(*) FROM payments WHERE id = $1", id).Scan(&n)
	return n > 0, err
}

func (w *worker) helper(ctx context.Context, id string) error {
	paid, err := w.paid(ctx, id)
	if err != nil || paid {
		return err
	}
	_, err = w.pool.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", id) // want "SELECT on payments decides"
	return err
}

func (w *worker) next(ctx context.Context, id string) error {
	rows, err := w.pool.Query(ctx, "SELECT id FROM payments WHERE id = $1", id)
	if err != nil {
		return err
	}
	there := rows.Next()
	rows.Close()
	if !there {
		_, err = w.pool.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", id) // want "SELECT on payments decides"
	}
	return err
}

func tenant(ctx context.Context, tx pgx.Tx, tenant, id string) error {
	var status string
	if err := tx.QueryRow(ctx, "SELECT status FROM orders WHERE tenant = $1 AND id = $2", tenant, id).Scan(&status); err != nil {
		return err
	}
	if status == "paid" {
		return nil
	}
	_, err := tx.Exec(ctx, "UPDATE orders SET status = 'paid' WHERE tenant = $1 AND id = $2", tenant, id) // want "SELECT on orders decides"
	return err
}

func orm(db *gorm.DB, id string) error {
	return db.Transaction(func(tx *gorm.DB) error {
		var n int
		if err := tx.Raw("SELECT count(*) FROM payments WHERE id = ?", id).Scan(&n).Error; err != nil {
			return err
		}
		if n == 0 {
			return tx.Exec("INSERT INTO payments (id) VALUES (?)", id).Error // want "SELECT on payments decides"
		}
		return nil
	})
}

var errDuplicate = errors.New("duplicate")

// The word alone keeps nothing apart.
func named(ctx context.Context, tx pgx.Tx, id string) error {
	var n int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM payments WHERE id = $1", id).Scan(&n); err != nil {
		return err
	}
	if n > 0 {
		return errDuplicate
	}
	_, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", id) // want "SELECT on payments decides"
	return err
}

// A row that is there ends the function.
func (w *worker) noError(ctx context.Context, id string) error {
	var n int
	if err := w.db.QueryRowContext(ctx, `SELECT 1 FROM payments WHERE id = $1`, id).Scan(&n); err == nil {
		return nil
	}
	_, err := w.db.ExecContext(ctx, `INSERT INTO payments (id) VALUES ($1)`, id) // want "SELECT on payments decides"
	return err
}
