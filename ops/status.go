package ops

// A Status is the state of a job, a command or a step. For the statuses of each, see [JobStatuses],
// [CommandStatuses] and [StepStatuses].
type Status string

// The statuses.
const (
	StatusPending    Status = "pending"    // a job that is due or delayed
	StatusWaiting    Status = "waiting"    // a job that waits for its turn in a lane
	StatusProcessing Status = "processing" // an attempt is running
	// it may or may not have taken effect: it needs a verdict
	StatusUnknown Status = "unknown"
	// a job that is not tried again until an operator decides
	StatusDeadLetter Status = "dead_letter"
	StatusCancelled  Status = "cancelled" // a job that its handler or an operator ended
	// a succeeded job has no row, unless its queue keeps it: see [JobRef.Archived]
	StatusSucceeded Status = "succeeded"
	// a step that may be called, or was called and has no recorded end
	StatusPlanned         Status = "planned"
	StatusFailedRetryable Status = "failed_retryable"
	StatusFailedFinal     Status = "failed_final" // refused permanently
)

// JobStatuses returns the statuses of a job.
func JobStatuses() []Status {
	return []Status{StatusPending, StatusWaiting, StatusProcessing, StatusUnknown, StatusDeadLetter, StatusCancelled, StatusSucceeded}
}

// CommandStatuses returns the statuses of a command. After failed_retryable, the next call with the
// key runs it again.
func CommandStatuses() []Status {
	return []Status{StatusProcessing, StatusSucceeded, StatusFailedRetryable, StatusFailedFinal, StatusUnknown}
}

// StepStatuses returns the statuses of a step.
func StepStatuses() []Status {
	return []Status{StatusPlanned, StatusSucceeded, StatusFailedFinal, StatusUnknown}
}
