package sqlcorders

import (
	"context"
)

const insertOrder = `-- name: InsertOrder :exec
insert into recipe_order (id, cents) values ($1, $2)
`

type InsertOrderParams struct {
	ID    string
	Cents int64
}

func (q *Queries) InsertOrder(ctx context.Context, arg InsertOrderParams) error {
	_, err := q.db.ExecContext(ctx, insertOrder, arg.ID, arg.Cents)
	return err
}
