package pawlkafka

import (
	"fmt"
	"testing"
	"time"
)

// At any bounds, fetching of a full partition resumes at the latest when all of its records are
// settled. Otherwise the partition would never be fetched again.
func TestPartition_FullIsFetchedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{MaxRecords: 1}, {MaxRecords: 2}, {MaxRecords: 3}, {MaxRecords: maxMaxRecords},
		{MaxOctets: 1}, {MaxOctets: 2}, {MaxOctets: recordOverhead}, {MaxOctets: maxMaxOctets},
		{MaxRecords: 1, MaxOctets: 1}, {MaxOctets: 1, MaxTotalOctets: 1}, {MaxOctets: 1, MaxTotalOctets: maxMaxTotalOctets}} {
		t.Run(fmt.Sprintf("%d records, %d octets, %d in all", c.MaxRecords, c.MaxOctets, c.MaxTotalOctets), func(t *testing.T) {
			t.Parallel()
			c, err := c.filled()
			if err != nil {
				t.Fatal(err)
			}
			s := &Source{config: c, changed: make(chan struct{}), kick: make(chan struct{}, 1)}
			p := newPartition(s, topicPartition{"t", 0}, topicID{}, "one")
			added := int64(0)
			for !p.full(c) && added < 100 {
				p.add(&entry{of: p, offset: added, size: recordOverhead})
				added++
			}
			s.octets, s.crowded = p.octets, true
			for len(p.entries) > 0 {
				for _, at := range p.take(1, time.Now()) {
					before := p.octets
					p.settle(at)
					s.octets -= before - p.octets
				}
			}
			if !p.roomy(c) {
				t.Errorf("all %d are settled, but the partition is not fetched again", added)
			}
			if !s.mayFetch() {
				t.Errorf("all %d are settled, but no partition is fetched again", added)
			}
		})
	}
}
