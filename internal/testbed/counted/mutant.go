package counted

// Mutants break a promise on purpose, in the worker processes of a run, whatever the transport. A judge that does not notice proves nothing. Other
// names are the transport's own: see [Spec].
const (
	AckFirst      = "acknowledge before COMMIT"      // loses what a killed process held
	AckReleased   = "acknowledge what is given back" // loses what a process that stops had not begun
	AckNothing    = "acknowledge nothing"            // settles nothing
	EffectOutside = "write outside the transaction"  // doubles what a killed process had written
	FreshKeys     = "another key at each delivery"   // doubles what comes again
	NoOrder       = "take the ordering key away"     // effects in any order
)

// ours are the mutants that a transport need not know.
var ours = map[string]bool{AckFirst: true, AckReleased: true, AckNothing: true, EffectOutside: true, FreshKeys: true, NoOrder: true}
