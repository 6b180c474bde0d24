package consumer

import "context"

// A Filter stores marks of deliveries outside the database, such as in Redis (module
// filter/pawlredis). A mark says that the inbox has a row of a key with a certain payload. It is
// stored after COMMIT. A later delivery whose mark is found is a duplicate, and is acknowledged
// without a transaction.
//
// A Filter need not be right. It may lose marks, and return old ones or those of other keys. A mark
// contains a digest of the delivery and of the inbox's epoch. The consumer reads the epoch from the
// database after the deliveries have arrived, once for all that one Receive returned, and believes
// only marks of that epoch. The epoch changes when rows may be gone: when the server has started
// again, was restored or replaced, or an operator has forgotten a delivery. The mark of a purged
// row is not believed either.
//
// An error or a panic is reported as an event and counts as no marks. Both methods must bound their
// time, and may be called at the same time.
type Filter interface {
	// Load returns the mark of each key, in order, or nil where there is none. Keys are
	// hexadecimal and do not reveal the keys of deliveries.
	Load(ctx context.Context, keys []string) (marks [][]byte, err error)
	// Store stores a mark of 40 octets under each key.
	Store(ctx context.Context, keys []string, marks [][]byte) error
}
