package handlers

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/lock"
)

// ErrRunning means that another process is migrating now.
var ErrRunning = errors.New("the migration is running elsewhere")

// NormalizeEmails fills a column of every customer, in transactions of 500 rows. The row itself
// shows that it is done, so the migration can be killed at any point and started again. The lock
// only saves duplicate work of two processes; the condition in the UPDATE makes it safe.
func NormalizeEmails(ctx context.Context, pool *pgxpool.Pool) (changed int64, err error) {
	for some := int64(1); some > 0; changed += some {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			locked, err := lock.TryLock(ctx, tx, "migration", "normalize emails")
			if err != nil {
				return err
			}
			if !locked {
				return ErrRunning
			}
			tag, err := tx.Exec(ctx, `update customer set email_normal = lower(trim(email))
 where id in (select id from customer where email_normal is null order by id limit 500) and email_normal is null`)
			some = tag.RowsAffected()
			return err
		})
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}
