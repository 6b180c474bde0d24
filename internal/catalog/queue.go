package catalog

import "context"

// queues has one row for each queue that has settings or unfinished jobs.
const queues = `(
  select coalesce(b.queue, q.name) as name, q.id, coalesce(q.mode, 'running') as mode, coalesce(q.archive, false) as archive,
         coalesce(b.due, 0) as due, coalesce(b.later, 0) as later, coalesce(b.waiting, 0) as waiting, coalesce(b.processing, 0) as processing,
         coalesce(b.dead, 0) as dead, coalesce(b.unknown, 0) as unknown, coalesce(b.cancelled, 0) as cancelled,
         coalesce(b.lanes_blocked, 0) as lanes_blocked, b.due_since,
         (select count(*)
            from pawl.job as j
           where j.status = 'pending'
             and (j.attempts > 0 or j.crashes > 0)
             and j.queue = coalesce(b.queue, q.name)) as begun
    from pawl_v1.backlog as b
    full join pawl.queue as q on q.name = b.queue
  ) as r`

// Queues reads pawl.queue and pawl_v1.backlog, ordered by name. A page without a limit reads all.
func Queues[T any](ctx context.Context, db DB, p Page) ([]T, error) {
	return readPage[T](ctx, db, "queue.list", &query{from: queues}, p, key{"name", "text"})
}

// Queue reads one queue. It returns no row if the queue does not exist.
func Queue[T any](ctx context.Context, db DB, name string) ([]T, error) {
	return lookWhole[T](ctx, db, "queue.get", queues+" where r.name = $1::text", name)
}

// LaneQuery selects rows of pawl_v1.lanes. A zero field matches all.
type LaneQuery struct {
	Queue   string
	Blocked bool // only lanes whose head is a dead letter or unknown
	Page
}

// Lanes reads pawl_v1.lanes, ordered by id.
func Lanes[T any](ctx context.Context, db DB, a LaneQuery) ([]T, error) {
	q := &query{from: "pawl_v1.lanes as r"}
	q.equal("r.queue", a.Queue)
	if a.Blocked {
		q.also("r.head_status in ('dead_letter', 'unknown')")
	}
	return readPage[T](ctx, db, "lane.list", q, a.Page, byID)
}

// Lane reads one lane. It returns no row if the lane does not exist.
func Lane[T any](ctx context.Context, db DB, queue, name string) ([]T, error) {
	return lookWhole[T](ctx, db, "lane.get", "pawl_v1.lanes as r where r.queue = $1 and r.name = $2", queue, name)
}

// SequenceGateQuery selects rows of pawl_v1.gates. A zero field matches all.
type SequenceGateQuery struct {
	Consumer string
	Held     bool // only gates that hold a delivery
	Page
}

// SequenceGates reads pawl_v1.gates, ordered by consumer and resource.
func SequenceGates[T any](ctx context.Context, db DB, a SequenceGateQuery) ([]T, error) {
	q := &query{from: "pawl_v1.gates as r"}
	q.equal("r.consumer", a.Consumer)
	if a.Held {
		q.also("r.held > 0")
	}
	return readPage[T](ctx, db, "gate.list", q, a.Page, key{"consumer", "text"}, key{"resource", "text"})
}

// SequenceGate reads one gate. It returns no row if the gate does not exist.
func SequenceGate[T any](ctx context.Context, db DB, consumer, resource string) ([]T, error) {
	return lookWhole[T](ctx, db, "gate.get", "pawl_v1.gates as r where r.consumer = $1 and r.resource = $2", consumer, resource)
}
