package inbox

import "time"

// Retention says how long deliveries are remembered: as long as the longest of these. What comes again later than that runs as
// new, unless it says how old it is. Shorter keeps the table smaller: a million rows are about 150 MB with their indexes.
type Retention struct {
	// ClientRetry is how long a sender keeps trying, with the same key.
	ClientRetry time.Duration
	// QueueRedelivery is how long the broker may hand a message out again, its dead letter queue and redrives included.
	QueueRedelivery time.Duration
	// Reconciliation is how far back somebody may send again what seems to be missing.
	Reconciliation time.Duration
	// Audit is how long you want to be able to ask whether a message was seen.
	Audit time.Duration
	// Forever forgets nothing. The table grows without bound.
	Forever bool
}

// Window is the longest of the four, 0 if none is given or nothing is to be forgotten.
func (r Retention) Window() time.Duration {
	if r.Forever {
		return 0
	}
	return max(r.ClientRetry, r.QueueRedelivery, r.Reconciliation, r.Audit)
}
