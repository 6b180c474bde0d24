package consumer

import (
	"time"

	"github.com/pawl-go/pawl"
)

// batchLinger is how long the first delivery of a batch waits for others.
const batchLinger = 10 * time.Millisecond

// batchFrom collects the deliveries that arrive within batchLinger after the first, up to a batch.
func (c *Consumer) batchFrom(first pawl.Delivery, work <-chan pawl.Delivery) []pawl.Delivery {
	batch := append(make([]pawl.Delivery, 0, c.handler.batchSize), first)
	linger := time.NewTimer(batchLinger)
	defer linger.Stop()
	for len(batch) < c.handler.batchSize {
		select {
		case d, open := <-work:
			if !open {
				return batch
			}
			batch = append(batch, d)
		case <-linger.C:
			return batch
		}
	}
	return batch
}
