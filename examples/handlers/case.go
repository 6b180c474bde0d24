package handlers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// MoveCase moves a case from one status to another and leaves an audit row. A message that comes late, when the case has moved on, is
// no failure that a retry could cure: it becomes a dead letter, for somebody to look at.
func MoveCase(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
	var m struct {
		Case     int64
		From, To string
	}
	if err := json.Unmarshal(d.Body, &m); err != nil {
		return pawl.Final(err)
	}
	moved, err := tx.Exec(ctx, "update cases set status = $3 where id = $1 and status = $2", m.Case, m.From, m.To)
	if err != nil {
		return err
	}
	if moved.RowsAffected() == 0 {
		return pawl.Final(fmt.Errorf("case %d is not %s", m.Case, m.From))
	}
	_, err = tx.Exec(ctx, "insert into case_audit (case_id, was, now, message) values ($1, $2, $3, $4)", m.Case, m.From, m.To, d.Key)
	return err
}
