// Package receipt creates the value that acknowledges a delivery. It is internal, so no code
// outside Pawl can create one. The value is a pawl.Receipt; package pawl registers its constructor,
// because the fields are private.
package receipt

var committed func(handle any) any

// Register sets the constructor. Package pawl calls it once.
func Register(make func(handle any) any) { committed = make }

// Committed returns the receipt of a delivery whose outcome is durable. R is pawl.Receipt. Call it
// only after COMMIT was answered. If the database answered instead that the delivery was seen
// before, call it once that answer is known to be replicated.
func Committed[R any](handle any) R { return committed(handle).(R) }
