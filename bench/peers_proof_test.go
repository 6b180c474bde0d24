//go:build proof

package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

// Every row of the peers runs on every contender, with few jobs; npm fetches those for Node. No rate is looked at. The row of kills is: a
// queue that ends a job in the transaction of its row, and checks that the job is still its own, must not have two rows of one job.
func TestNode_PeersEveryRow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	plans := peerPlans()
	r, err := run(ctx, plans, scales["tiny"], []string{""}, "", func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(plans) {
		t.Errorf("%d rows of %d", len(r.Rows), len(plans))
	}
	exact := map[string]bool{"Pawl": true, "Pawl, batch": true, "pg-boss, tx": true, "watermill-sql": true}
	for _, row := range r.Rows {
		for _, l := range row.Lines {
			for _, round := range l.Rounds {
				switch {
				case round.Failed != "":
					t.Errorf("%s, %s: %s", row.ID, l.Who, round.Failed)
				case row.ID != "peers-kill" && round.Value == 0:
					t.Errorf("%s, %s: nothing moved", row.ID, l.Who)
				case row.ID == "peers-kill" && exact[l.Who] && round.Value != 0:
					t.Errorf("%s, %s: %s", row.ID, l.Who, round.Said)
				case row.ID == "peers-kill" && strings.HasPrefix(l.Who, "loop") && round.Value == 0:
					t.Errorf("%s, %s: it should be broken: %s", row.ID, l.Who, round.Said)
				}
			}
		}
	}
}
