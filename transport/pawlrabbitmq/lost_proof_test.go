//go:build proof

package pawlrabbitmq_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

// The error names a deleted queue, and the source consumes a new queue of that name.
func TestSource_QueueIsDeletedAndMadeAnew(t *testing.T) {
	t.Parallel()
	f := setup(t, quorum(), pawlrabbitmq.Config{})
	f.send("a")
	f.ack(f.get(1)...)
	_, err := f.ch.QueueDelete(f.queue, false, false, false)
	f.must(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	eventually(t, "the error says that the queue does not exist", func() bool {
		_, err := f.source.Receive(ctx, 1)
		if err != nil {
			t.Log(err)
		}
		return err != nil && strings.Contains(err.Error(), "does not exist")
	})
	_, err = f.ch.QueueDeclare(f.queue, true, false, false, false, quorum())
	f.must(err)
	f.send("b")
	f.wantKeys(f.get(1), "b")
}
