package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

// namePrefixes make one name of another. Consumer orders stores deliveries in queue inbox/orders,
// sink billing has queue outbox/billing, and steps of queue orders have scope job/orders.
var namePrefixes = []string{"inbox/", "outbox/", "job/"}

// otherNames returns the names that a user may have meant by a name that has nothing.
func otherNames(name string) (others []string) {
	for _, prefix := range namePrefixes {
		if bare, found := strings.CutPrefix(name, prefix); found {
			others = append(others, bare)
		} else {
			others = append(others, prefix+name)
		}
	}
	return others
}

// foundWith asks whether another name is meant, if there is something of it. count counts what
// there is of a name. The question is empty if there is nothing.
func foundWith(flag, name string, count func(name string) (number string, err error)) (question string, err error) {
	if name == "" {
		return "", nil
	}
	var found []string
	for _, other := range otherNames(name) {
		number, err := count(other)
		if err != nil {
			return "", err
		}
		if number != "0" {
			found = append(found, fmt.Sprintf("--%s %s (%s found)", flag, text.ShellWord(other), number))
		}
	}
	if len(found) == 0 {
		return "", nil
	}
	return "did you mean " + strings.Join(found, ", or ") + "?", nil
}

// jobsElsewhere asks whether another queue is meant, if the named one has no jobs.
func jobsElsewhere(ctx context.Context, conn *pgx.Conn, queue string) (question string, err error) {
	if n, err := (ops.Jobs{Queue: queue}).Count(ctx, conn); n > 0 || err != nil {
		return "", err
	}
	for _, other := range otherNames(queue) {
		if n, err := (ops.Jobs{Queue: other}).Count(ctx, conn); n > 0 || err != nil {
			return fmt.Sprintf("queue %s has no jobs; did you mean %s, which has %d?", queue, other, n), err
		}
	}
	return "", nil
}

// notAConsumer says which consumer is meant by the name of its queue, or "".
func notAConsumer(name string) string {
	if consumer, found := strings.CutPrefix(name, "inbox/"); found {
		return name + " is the queue of consumer " + consumer
	}
	return ""
}
