package lock

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/contract"
)

// FenceHeader names the HTTP header that carries a fence to a store which checks it: a decimal number, 1 or more.
const FenceHeader = "Pawl-Fence"

// AcceptFence lets a write to a resource pass if no newer attempt wrote to it. Call it first in the transaction that
// writes: the resource stays locked until that ends, and the fence is remembered if it commits. The same fence may
// come again.
//
// errors.Is(err, pawl.ErrFenceLost): a newer attempt was here; roll back. If another transaction writes to the resource for
// more than 2 s, or under REPEATABLE READ and SERIALIZABLE has just done so, the error is [pawl.Retryable].
//
// Fences are comparable when they come from one source, such as the claims of one job, so put the source into the name
// of the resource: "job 17 report". It has 1 to 255 octets. What Pawl remembers per resource is one row; nothing
// removes it, and while a stale attempt may still come nothing should.
func AcceptFence(ctx context.Context, tx pgx.Tx, resource string, fence int64) error {
	return contract.FenceAccept(ctx, tx, resource, fence)
}
