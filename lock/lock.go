package lock

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/contract"
)

// TryLock takes a name for the rest of the transaction, or reports at once that another transaction has it: one run at a
// time of what no row stands for, such as the close of a merchant's day or the import of one file. Namespace and key have
// 1 to 255 octets ([pawl.CodeScopeInvalid], [pawl.CodeKeyInvalid]).
//
// It remembers nothing: when the transaction has ended, the next caller gets the name, so check in your own rows
// whether the work was done. Names are hashed to 64 bits; a collision can refuse for nothing and never lets two in.
// The same transaction gets a name as often as it asks.
func TryLock(ctx context.Context, tx pgx.Tx, namespace, key string) (locked bool, err error) {
	return contract.TryLock(ctx, tx, namespace, key)
}
