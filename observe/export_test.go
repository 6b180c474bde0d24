package observe

// Decided reports whether named has an entry for the first word of an Op.
func Decided(room string) bool {
	_, decided := named[room]
	return decided
}
