package lock

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/contract"
)

// FenceHeader is the HTTP header that carries a fence to a store that checks it: a decimal number,
// 1 or more.
const FenceHeader = "Pawl-Fence"

// AcceptFence accepts a write to a resource if no newer attempt has written to it. Call it first in
// the transaction that writes. The resource stays locked until the transaction ends, and the fence
// is recorded if it commits. The same fence may come again.
//
// Errors: pawl.ErrFenceLost if a newer attempt has written: roll back. The error is
// pawl.Retryable if another transaction holds the resource for more than 2 s, and under
// REPEATABLE READ and SERIALIZABLE also if one has just written to it.
//
// Fences are comparable if they come from one source, such as the claims of one job. So put the
// source into the resource's name, of 1 to 255 octets: "job 17 report". Pawl keeps one row for each
// resource and does not delete it by itself, because a stale attempt may still come; ops.Purge can.
func AcceptFence(ctx context.Context, tx pgx.Tx, resource string, fence int64) error {
	return contract.FenceAccept(ctx, tx, resource, fence)
}
