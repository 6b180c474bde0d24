package job

import (
	"errors"
	"time"

	"github.com/pawl-go/pawl/internal/directive"
)

// RetryAfter returns an error that sets the wait before the next attempt, in place of the backoff.
// Use it for a Retry-After header. The attempt is charged. At most a year.
func RetryAfter(in time.Duration, err error) error {
	if err == nil {
		err = errors.New("the handler asked for a retry")
	}
	return &directive.Directive{What: directive.RetryAfter, In: in, Err: err}
}

// Snooze returns an error that releases the job until later, uncharged and without an entry in its
// error history. Use it if it is too early. The handler's rows are rolled back. At most a year.
func Snooze(in time.Duration) error { return &directive.Directive{What: directive.Snooze, In: in} }

// WaitFor returns an error for a job that needs something which has not come yet, as the payment of
// an order. The job is tried again after every, uncharged, and its error history says once what it
// waits for. After atMost, by the database's clock since the first of these errors, it becomes a
// dead letter with the same reason. The handler runs once more at that time. Another error in
// between begins another wait. In a lane the jobs behind it wait too. Name the thing in the same
// words each time. Both durations are at most a year.
func WaitFor(what string, every, atMost time.Duration) error {
	return &directive.Directive{What: directive.Wait, In: every, Limit: atMost, Err: errors.New("waits for " + what)}
}

// Cancel returns an error that ends the job without success and without a retry, because it is no
// longer needed. The job keeps its row with status cancelled and err as the reason. An operator can
// retry it. For a job that should have succeeded use [pawl.Final].
func Cancel(err error) error {
	if err == nil {
		err = errors.New("the handler cancelled it")
	}
	return &directive.Directive{What: directive.Cancel, Err: err}
}
