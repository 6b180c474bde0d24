package lock

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/contract"
)

// TryLock takes a name for the rest of the transaction, or reports at once that another transaction
// has it. Use it for work that has no row of its own and must run once at a time, such as closing a
// merchant's day or importing a file.
//
// TryLock remembers nothing: after the transaction the next caller gets the name. So check in your
// own rows whether the work was done. The same transaction may take a name again. Names are hashed
// to 64 bits: a collision may refuse a free name, but never lets two transactions in.
//
// Errors: pawl.ErrScopeInvalid and pawl.ErrKeyInvalid unless namespace and key have 1 to 255
// octets.
func TryLock(ctx context.Context, tx pgx.Tx, namespace, key string) (locked bool, err error) {
	return contract.TryLock(ctx, tx, namespace, key)
}
