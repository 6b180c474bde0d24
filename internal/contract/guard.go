package contract

import "context"

// TryLock calls pawl_v1.try_lock and reports whether the transaction now holds the name.
func TryLock(ctx context.Context, db DB, namespace, key string) (locked bool, err error) {
	var outcome string
	err = one(ctx, db, "try_lock", "select l.outcome from pawl_v1.try_lock($1, $2) as l", []any{namespace, key}, &outcome)
	return outcome == "locked", err
}

// FenceAccept calls pawl_v1.fence_accept.
func FenceAccept(ctx context.Context, db DB, resource string, fence int64) error {
	var outcome string
	return one(ctx, db, "fence.accept", "select a.outcome from pawl_v1.fence_accept($1, $2) as a", []any{resource, fence}, &outcome)
}
