package handlers

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
)

// A Move asks to change the status of a case.
type Move struct {
	Case     int64
	From, To string
}

// MoveCase changes the status of a case and writes an audit row. If the case has another status by
// now, no retry can help: the message becomes a dead letter for an operator.
func MoveCase(ctx context.Context, tx pgx.Tx, m consumer.Message[Move]) error {
	move := m.Value
	moved, err := tx.Exec(ctx, "update cases set status = $3 where id = $1 and status = $2", move.Case, move.From, move.To)
	if err != nil {
		return err
	}
	if moved.RowsAffected() == 0 {
		return pawl.Final(fmt.Errorf("case %d is not %s", move.Case, move.From))
	}
	_, err = tx.Exec(ctx, "insert into case_audit (case_id, was, now, message) values ($1, $2, $3, $4)", move.Case, move.From, move.To, m.Key)
	return err
}
