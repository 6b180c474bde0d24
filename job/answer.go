package job

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
)

// An answer is what a handler's error says about the job, beyond that the attempt failed.
type answer struct {
	what string // of the cases below
	in   time.Duration
	err  error
}

const (
	retryAfter = "retry after"
	snooze     = "snooze"
	cancelled  = "cancelled"
)

func (v *answer) Error() string {
	if v.err == nil {
		return fmt.Sprintf("%s %v", v.what, v.in)
	}
	return v.err.Error()
}

func (v *answer) Unwrap() error { return v.err }

// RetryAfter says when the next try may start, in place of the back-off: what a Retry-After header asks for. The attempt
// is charged. At most a year.
func RetryAfter(in time.Duration, err error) error {
	if err == nil {
		err = errors.New("the handler asked to be tried again")
	}
	return &answer{retryAfter, in, err}
}

// Snooze gives the job back for later, uncharged and without an entry in its error history: nothing failed, it is only
// too early. What the handler wrote in the job's transaction is rolled back. At most a year.
func Snooze(in time.Duration) error { return &answer{snooze, in, nil} }

// Cancel ends the job without success and without another try: what it was for is gone. It keeps its row, status
// cancelled, with err as the reason; an operator can retry it. For a job that ought to have worked use [pawl.Final].
func Cancel(err error) error {
	if err == nil {
		err = errors.New("the handler cancelled it")
	}
	return &answer{cancelled, 0, err}
}

// answerOf returns what err says, with a zero answer for an ordinary failure.
func answerOf(err error) answer {
	var v *answer
	if errors.As(err, &v) && !pawl.IsFinal(err) {
		return *v
	}
	return answer{}
}
