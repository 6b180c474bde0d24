package doctor

import (
	"context"
	"fmt"

	"github.com/pawl-go/pawl"
)

// checkReplication looks at what stands between an answer and the synchronous standbys that it should wait for.
func checkReplication(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		Scope    string `json:"scope"` // "session", "role setting", "standby" or "worker"
		Target   string `json:"target"`
		WorkerID int64  `json:"worker_id"`
	}
	return findings(ctx, db, "replication", func(f fact) Finding {
		found := Finding{Why: "synchronous_standby_names promises that what was answered survives the loss of this server"}
		switch f.Scope {
		case "session":
			found.What = "synchronous_commit is local here: no commit waits for the standbys"
			found.Fix = "turn it on: alter database " + f.Target + " set synchronous_commit = on"
		case "role setting":
			found.What = "synchronous_commit is local for " + f.Target + ": its commits wait for no standby"
			found.Fix = "turn it on: alter " + f.Target + " set synchronous_commit = on"
		case "standby":
			found.What = "no synchronous standby is connected: every commit waits"
			found.Fix = "start the standby, or, to go on without that promise: alter system set synchronous_standby_names = '', and reload"
		case "worker":
			found.What = fmt.Sprintf("worker %d (%s) does not hear that a commit stopped waiting for its standby", f.WorkerID, f.Target)
			found.Fix = "call pawl.Watch on the configuration of its pool"
		}
		return found
	})
}
