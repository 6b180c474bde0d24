package counted

// Mutants break a promise on purpose in the worker processes of a run, for any transport. They
// prove that the judge finds such a defect. Other names are the transport's own mutants: see
// [Spec].
const (
	AckFirst = "acknowledge before COMMIT" // loses the deliveries of a killed process
	// AckReleased loses the unstarted deliveries of a process that shuts down.
	AckReleased   = "acknowledge what is given back"
	AckNothing    = "acknowledge nothing"           // settles no message
	EffectOutside = "write outside the transaction" // doubles the writes of a killed process
	FreshKeys     = "another key at each delivery"  // doubles redelivered messages
	NoOrder       = "take the ordering key away"    // effects come in any order
)

// ours are the mutants of this package.
var ours = map[string]bool{AckFirst: true, AckReleased: true, AckNothing: true, EffectOutside: true, FreshKeys: true, NoOrder: true}
