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

// Cancel returns an error that ends the job without success and without a retry, because it is no
// longer needed. The job keeps its row with status cancelled and err as the reason. An operator can
// retry it. For a job that should have succeeded use [pawl.Final].
func Cancel(err error) error {
	if err == nil {
		err = errors.New("the handler cancelled it")
	}
	return &directive.Directive{What: directive.Cancel, Err: err}
}
