// Package receipt makes the one value that can acknowledge a delivery, where nobody outside Pawl can make one. The value is a
// pawl.Receipt; package pawl registers how it is made, since its fields are its own.
package receipt

var committed func(handle any) any

// Register is called once, by package pawl.
func Register(make func(handle any) any) { committed = make }

// Committed makes the receipt for a delivery whose outcome is durable. R is pawl.Receipt. Call it only after COMMIT was answered, or after
// the database itself said that the delivery was seen before, and what it said is known to be replicated.
func Committed[R any](handle any) R { return committed(handle).(R) }
