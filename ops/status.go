package ops

// A Status is where a job, a command or a step stands. Each has some of them: see [JobStatuses], [CommandStatuses] and [StepStatuses].
type Status string

// The statuses.
const (
	StatusPending         Status = "pending"     // a job that is due, or waits for its time
	StatusWaiting         Status = "waiting"     // a job that waits for its turn behind others
	StatusProcessing      Status = "processing"  // an attempt is running
	StatusUnknown         Status = "unknown"     // whether it took effect is not known: it needs a verdict
	StatusDeadLetter      Status = "dead_letter" // a job that is not tried again until an operator decides
	StatusCancelled       Status = "cancelled"   // a job that its handler or an operator ended
	StatusSucceeded       Status = "succeeded"   // a job that succeeded has no row, unless its queue keeps it: see [JobRef.Archived]
	StatusPlanned         Status = "planned"     // a step that may be called, or was called and has no recorded end
	StatusFailedRetryable Status = "failed_retryable"
	StatusFailedFinal     Status = "failed_final" // refused for good
)

// JobStatuses returns those of a job.
func JobStatuses() []Status {
	return []Status{StatusPending, StatusWaiting, StatusProcessing, StatusUnknown, StatusDeadLetter, StatusCancelled, StatusSucceeded}
}

// CommandStatuses returns those of a command. After failed_retryable the next call with the key runs it again.
func CommandStatuses() []Status {
	return []Status{StatusProcessing, StatusSucceeded, StatusFailedRetryable, StatusFailedFinal, StatusUnknown}
}

// StepStatuses returns those of a step.
func StepStatuses() []Status {
	return []Status{StatusPlanned, StatusSucceeded, StatusFailedFinal, StatusUnknown}
}
