package ops

import (
	"slices"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Status is where a job stands.
type Status string

// The statuses. A job that finished has none: its row is gone.
const (
	StatusPending    Status = "pending"     // due, or waiting for its time
	StatusWaiting    Status = "waiting"     // for its turn behind others
	StatusProcessing Status = "processing"  // an attempt is running
	StatusUnknown    Status = "unknown"     // whether it took effect is not known
	StatusDeadLetter Status = "dead_letter" // nobody tries it again until an operator decides
	StatusCancelled  Status = "cancelled"   // ended by its handler or an operator
	StatusSucceeded  Status = "succeeded"   // nothing leaves a job in it yet
)

// Statuses returns all of them.
func Statuses() []Status {
	return []Status{StatusPending, StatusWaiting, StatusProcessing, StatusUnknown, StatusDeadLetter, StatusCancelled, StatusSucceeded}
}

// texts makes an empty list nil: no condition.
func texts[T ~string](values []T) []string {
	if len(values) == 0 {
		return nil
	}
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}

// A Job is one job at a glance.
type Job struct {
	ID          int64
	Queue, Kind string
	Status      Status
	Priority    int // 1 first
	Attempts    int // used, the running one included
	MaxAttempts int
	Crashes     int // deaths of a process it was present at
	Fence       int64
	AvailableAt time.Time // not before
	CreatedAt   time.Time
	Worker      string // whose attempt is running; empty: nobody's, or one without a worker
	LastError   string
	LastCode    string // of that error: a SQLSTATE, "crash", or empty
	ArgsOctets  int
	Lane        string    // in which it runs one at a time with others; empty: none
	MessageKey  string    // of the delivery that landed in it; empty: it is none, or that had none
	ReadAt      time.Time // the database's clock at the reading: ages count from here
}

func jobOf(r contract.JobRow) Job {
	return Job{ID: r.ID, Queue: r.Queue, Kind: r.Kind, Status: Status(r.Status), Priority: r.Priority, Attempts: r.Attempts,
		MaxAttempts: r.MaxAttempts, Crashes: r.Crashes, Fence: r.Fence, AvailableAt: r.AvailableAt, CreatedAt: r.CreatedAt,
		Worker: orZero(r.Worker), LastError: orZero(r.LastError), LastCode: orZero(r.LastCode),
		ArgsOctets: r.ArgsOctets, Lane: orZero(r.Lane), MessageKey: orZero(r.MessageKey), ReadAt: r.ReadAt}
}

// MayDouble reports whether a retry of the job may take effect a second time: it is a delivery that came under a known key with another
// payload, or later than is remembered, and nobody has retried it yet.
func (j Job) MayDouble() bool {
	return j.Status == StatusDeadLetter && slices.Contains(doubling, pawl.Code(j.LastCode))
}

// doubling are the codes of such errors.
var doubling = []pawl.Code{pawl.CodeMessageReused, pawl.CodeDeliveryStale}

// A Detail is all there is to know of one job.
type Detail struct {
	Job
	Headers map[string]any
	Args    []byte   // the payload
	Errors  []Error  // the last 10, oldest first
	Holder  *Holder  // nil: no attempt is running
	Changes []Change // the newest 100 records of the audit, oldest first
	Steps   []Effect // its calls of other systems that package effect knows, at most 100
}

// An Error is how one attempt ended.
type Error struct {
	At      time.Time
	Attempt int
	Code    string // a SQLSTATE, "crash", or empty
	Error   string
}

// A Holder is who runs the attempt.
type Holder struct {
	WorkerID       int64 // 0: claimed without a worker
	Name           string
	SeenAt         time.Time // the last heartbeat; zero without a worker
	LeaseExpiresAt time.Time
	Present        bool // the worker holds a presence lock, so that its death is noticed before the lease is over
}

// A Change is one record of the audit.
type Change struct {
	ID            int64
	At            time.Time
	Actor, Reason string
	Verb          string // the SQL function: "job_retry"
	Before, After []byte // JSON: the row without its payload, of which length and SHA-256 stay. After null: deleted
}
