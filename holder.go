package pawl

import "context"

// An Owner names what an attempt works on. It is the same at every attempt.
type Owner struct {
	Scope string // 1 to 255 octets
	Key   string // within Scope, 1 to 255 octets
	// JobID is the job that waits for an operator if the outcome of a call is unknown; 0: none.
	JobID int64
}

// A Holder is an attempt that owns a job, a delivery under a lease, a leased command, or a claimed
// row of package guard. Package step calls other systems on behalf of a Holder.
type Holder interface {
	// Hold locks the owned row in tx and checks that this attempt owns it, else [ErrFenceLost].
	Hold(ctx context.Context, tx Tx) error
	// Owner returns the owner of the attempt.
	Owner() Owner
}
