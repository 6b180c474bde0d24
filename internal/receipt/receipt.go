// Package receipt holds the one type that can acknowledge a delivery, where nobody outside Pawl can make one.
package receipt

// A Receipt is proof that the database already holds the outcome of a delivery.
type Receipt struct {
	handle    any
	committed bool
	unproved  bool
}

// Committed makes the receipt for a delivery whose outcome is durable. Call it only after COMMIT was answered, or
// after the database itself said that the delivery was seen before.
func Committed(handle any) Receipt { return Receipt{handle: handle, committed: true} }

// Read makes the receipt for a delivery whose outcome was only read, and may not be replicated. It acknowledges nothing until it is
// [Proved].
func Read(handle any) Receipt { return Receipt{handle: handle, unproved: true} }

// Proved makes the receipt of one that was read. Call it only after everything that was committed before is known to be replicated.
func Proved(r Receipt) Receipt { return Committed(r.handle) }

// Of makes the receipt of another delivery that shares the outcome of r's.
func Of(r Receipt, handle any) Receipt { r.handle = handle; return r }

// Unproved reports whether a receipt was made by [Read].
func Unproved(r Receipt) bool { return r.unproved }

// Valid reports whether the receipt came from a commit. The zero Receipt is not valid.
func (r Receipt) Valid() bool { return r.committed }

// Handle returns what the transport put into Delivery.Handle.
func (r Receipt) Handle() any { return r.handle }
