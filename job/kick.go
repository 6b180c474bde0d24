package job

import "github.com/pawl-go/pawl/internal/kick"

// Kick wakes idle workers of some queues, in any process. [Enqueue] does this itself. You need Kick
// in two cases. Your transaction stays open long after it enqueued, and a worker has become idle
// meanwhile. Or the server has max_prepared_transactions above 0, where enqueueing transactions do
// not notify.
//
// Call Kick after your transaction has committed, with its pool. Kick does not wait: a background
// goroutine sends the notification, and calls made meanwhile share the next one. A worker that
// misses the notification polls. For a worker of this process, [Worker.Kick] needs no database.
//
// Transactions of Pawl, such as those of [HandleTx], of a consumer or of a command, kick by
// themselves when they commit.
//
// Workers listen on their presence connection, so a worker with Presence.Off is not woken.
func Kick(db DB, queues ...string) { kick.Workers(db, queues...) }
