package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
)

// checkReplication finds settings and workers for which answers do not wait for the synchronous
// standbys.
func checkReplication(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		Scope    string `json:"scope"` // "session", "role setting", "standby" or "worker"
		Target   string `json:"target"`
		WorkerID int64  `json:"worker_id"`
	}
	return findings(ctx, db, "replication", func(f fact) Finding {
		found := Finding{Why: "synchronous_standby_names promises that answered commits survive the loss of this server"}
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
			found.What = fmt.Sprintf("worker %d (%s) does not notice that a commit stopped waiting for its standby", f.WorkerID, f.Target)
			found.Fix = "call pawl.Watch on the configuration of its pool"
		}
		return found
	})
}

// checkStandbys reports the cost of a failover now. It sees only standbys of streaming replication,
// not replication that a provider does below SQL.
func checkStandbys(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		Scope    string  `json:"scope"` // "standby", "asynchronous" or "few"
		Standbys int     `json:"standbys"`
		Needed   int     `json:"needed"` // standbys that must have a commit before it is answered
		Octets   int64   `json:"octets"` // that the slowest standby lacks
		Seconds  float64 `json:"seconds"`
	}
	return findings(ctx, db, "standbys", func(f fact) Finding {
		standbys := text.Plural(f.Standbys, "standby", "standbys")
		switch f.Scope {
		case "standby":
			return Finding{What: "this connection is to a standby", Why: "a standby takes no claim: workers and consumers that connect so do nothing, and some checks here see old rows",
				Fix: "connect to the primary: target_session_attrs=read-write in the URL, with the names of all servers"}
		case "asynchronous":
			return Finding{What: fmt.Sprintf("commits wait for no standby: the slowest of %s is %d octets and %v behind", standbys, f.Octets, (time.Duration(f.Seconds * float64(time.Second))).Round(time.Millisecond)),
				Why: "a failover to it loses that much acknowledged and answered work, effects and inbox rows together: brokers do not redeliver it, and callers that retry run it again",
				Fix: "set synchronous_standby_names (Patroni: synchronous_mode and synchronous_mode_strict), or accept the loss: --skip standbys"}
		}
		return Finding{What: fmt.Sprintf("%s connected, and %d must have each commit before it is answered", isAre(standbys, f.Standbys), f.Needed),
			Why: "while one is away, for a restart or a failover, every commit waits", Fix: "connect one standby more than commits wait for, or accept the pause: --skip standbys"}
	})
}

func isAre(what string, n int) string {
	if n == 1 {
		return what + " is"
	}
	return what + " are"
}
