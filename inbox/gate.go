package inbox

// A GateMode says which numbers a sequence gate lets pass.
type GateMode string

const (
	// Latest lets pass whatever is newer than what took effect last, and drops the rest: for messages that carry the whole state.
	Latest GateMode = "latest"
	// Strict lets pass the next number only: it holds what comes early and drops what comes again.
	Strict GateMode = "strict"
)
