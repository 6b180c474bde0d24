package job

import (
	"errors"
	"time"

	"github.com/pawl-go/pawl/internal/answer"
)

// RetryAfter says when the next try may start, in place of the back-off: what a Retry-After header asks for. The attempt
// is charged. At most a year.
func RetryAfter(in time.Duration, err error) error {
	if err == nil {
		err = errors.New("the handler asked to be tried again")
	}
	return &answer.Answer{What: answer.RetryAfter, In: in, Err: err}
}

// Snooze gives the job back for later, uncharged and without an entry in its error history: nothing failed, it is only
// too early. What the handler wrote in the job's transaction is rolled back. At most a year.
func Snooze(in time.Duration) error { return &answer.Answer{What: answer.Snooze, In: in} }

// Cancel ends the job without success and without another try: what it was for is gone. It keeps its row, status
// cancelled, with err as the reason; an operator can retry it. For a job that ought to have worked use [pawl.Final].
func Cancel(err error) error {
	if err == nil {
		err = errors.New("the handler cancelled it")
	}
	return &answer.Answer{What: answer.Cancel, Err: err}
}
