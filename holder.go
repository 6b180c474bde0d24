package pawl

import "context"

// An Owner names what an attempt works on, the same at every attempt.
type Owner struct {
	Scope string // 1 to 255 octets
	Key   string // within Scope, 1 to 255 octets
	JobID int64  // the job that waits if nobody can tell how a call of it ended; 0: none
}

// A Holder is an attempt that owns something: a job, a delivery under a lease, a leased command. Package step calls others for
// it.
type Holder interface {
	// Hold locks what is owned in tx and proves that this attempt still owns it; else [ErrFenceLost].
	Hold(ctx context.Context, tx Tx) error
	// Owner is the same at every attempt.
	Owner() Owner
}
