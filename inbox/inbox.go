package inbox

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
)

// A Claim says whether a delivery is new. It is valid in the transaction that called [Take].
type Claim struct {
	// Fresh means that this transaction owns a new delivery: do the work and commit. If false, it
	// took effect before, or a job of a consumer owns it: do nothing, commit, and acknowledge.
	Fresh bool
	// JobID is the job that owns the delivery, or 0 if it took effect in the claiming transaction.
	JobID int64
	// ReceivedAt is when the delivery was first claimed, by the database's clock.
	ReceivedAt time.Time
	// Unreplicated means that the claim is not fresh and the server replicates synchronously. Only
	// this transaction's COMMIT confirms that the outcome is replicated: do not acknowledge after a
	// rollback.
	Unreplicated bool
}

// Take claims the delivery that intent names: Scope is the consumer, Key the delivery's key. Call
// it first in the transaction that writes the effect: a pgx.Tx, or a *sql.Tx through [pawl.SQLTx].
//
// Errors: [pawl.ErrKeyReused] if the key came before with another payload. SQLSTATE 55P03
// ([pawl.Retryable]) if another transaction holds the key for 50 ms: roll back, do not acknowledge.
// The errors of [pawl.Intent.Validate].
func Take(ctx context.Context, tx pawl.Tx, intent pawl.Intent) (Claim, error) {
	c, err := delivery.Take(ctx, tx, intent)
	return Claim{Fresh: c.Fresh, JobID: c.JobID, ReceivedAt: c.ReceivedAt, Unreplicated: c.ReadOn != ""}, err
}

// Missing returns the keys that a consumer does not remember, in the order given. Use it to compare
// with a sender's list of messages. Pass at most about 1,000 keys. Errors are those of the
// database.
func Missing(ctx context.Context, db pawl.DB, consumer string, keys []string) ([]string, error) {
	return delivery.Missing(ctx, db, consumer, keys)
}
