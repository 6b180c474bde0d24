package observe

// Decided reports whether somebody has decided about the first word of an Op.
func Decided(room string) bool {
	_, decided := named[room]
	return decided
}
