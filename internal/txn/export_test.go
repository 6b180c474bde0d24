package txn

import "context"

// SavepointName is the name of the savepoint that handlers run behind.
var SavepointName = savepointName

// Take takes a connection from the pool and gives it back.
func (o Opener) Take(ctx context.Context) error {
	conn, err := o.acquire(ctx)
	if err == nil {
		conn.Release()
	}
	return err
}

// Ends returns the first word of a text's statement that ends the transaction.
func Ends(text string) string {
	_, _, ends := look(text)
	return ends
}
