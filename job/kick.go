package job

import "github.com/pawl-go/pawl/internal/kick"

// Kick tells the workers of some queues, in whatever process, that there are jobs, so that they need not wait for their next
// poll. Call it after your transaction has committed, with the pool it came from. It does not wait: the hint is sent beside the
// caller, and calls that come meanwhile share the next one, so that however many transactions commit, few notifications are sent.
// A worker that misses the hint polls. For a worker of this process [Worker.Kick] does without the database.
//
// A transaction of Pawl's own, such as that of [HandleTx], of a consumer or of a command, kicks by itself when it commits.
//
// Workers listen on their presence connection, so one with Presence.Off hears nothing.
func Kick(db DB, queues ...string) { kick.Workers(db, queues...) }
