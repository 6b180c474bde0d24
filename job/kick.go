package job

import "github.com/pawl-go/pawl/internal/kick"

// Kick wakes the workers of some queues, in whatever process, that sleep. [Enqueue] does so by itself, so you need Kick in two cases only:
// your transaction stayed open for long after it enqueued, and a worker has fallen asleep meanwhile; or the server has
// max_prepared_transactions above 0, where no transaction that enqueues notifies.
//
// Call it after your transaction has committed, with the pool it came from. It does not wait: the hint is sent beside the caller, and calls
// that come meanwhile share the next one. A worker that misses the hint polls. For a worker of this process [Worker.Kick] does without the
// database.
//
// A transaction of Pawl's own, such as that of [HandleTx], of a consumer or of a command, kicks by itself when it commits.
//
// Workers listen on their presence connection, so one with Presence.Off hears nothing.
func Kick(db DB, queues ...string) { kick.Workers(db, queues...) }
