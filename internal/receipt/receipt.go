// Package receipt holds the one type that can acknowledge a delivery, where nobody outside Pawl can make one.
package receipt

// A Receipt is proof that the database already holds the outcome of a delivery.
type Receipt struct {
	handle    any
	committed bool
}

// Committed makes the receipt for a delivery whose outcome is durable. Call it only after COMMIT was answered, or
// after the database itself said that the delivery was seen before.
func Committed(handle any) Receipt { return Receipt{handle: handle, committed: true} }

// Valid reports whether the receipt came from a commit. The zero Receipt is not valid.
func (r Receipt) Valid() bool { return r.committed }

// Handle returns what the transport put into Delivery.Handle.
func (r Receipt) Handle() any { return r.handle }
