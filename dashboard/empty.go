package dashboard

// An empty stands in for rows that do not exist yet. It says what would appear, and one command
// that makes it appear.
type empty struct {
	Text string
	Try  string // a shell command; optional
}

func (empty) Kind() string { return "empty" }

// sql is a command that calls a function of Pawl, as code in any language may. Its names begin with
// "try", so that no worker, relay or consumer takes the row.
func sql(call string) string {
	return `psql "$PAWL_DATABASE_URL" -c "select * from pawl_v1.` + call + `"`
}

// The texts of the pages before there is a first row.
var (
	noCharts    = empty{Text: "Nothing was counted in this time. Effects, duplicates, failures and crashes appear here while workers and consumers run."}
	noQueues    = empty{"A queue appears here with its first job. This enqueues one:", sql(`job_enqueue('try', 'hello', '{}')`)}
	noJobs      = empty{"Jobs appear here until they succeed. This enqueues one:", sql(`job_enqueue('try', 'hello', '{}')`)}
	noDead      = empty{Text: "No dead letters. A job appears here when its last attempt has failed, and waits until you retry or discard it."}
	noLanes     = empty{"A lane runs its jobs one at a time, in order. This enqueues a job in one:", sql(`job_enqueue('try', 'hello', '{}', '{\"lane\": \"account 7\"}')`)}
	noConsumers = empty{"A consumer appears here while it receives messages. This writes a service with one:", "pawl init orders"}
	noKept      = empty{Text: "None was kept. Consumers keep signed webhooks as they came, and what became a dead letter."}
	noGates     = empty{"A gate appears here with the first numbered delivery of a resource. This sets the number of one by hand:",
		sql(`sequence_gate_reset('try', 'account 7', 41, 'you', 'the next number is 42')`)}
	noCommands = empty{"A command appears here with the first request that has an idempotency key. This runs one:",
		sql(`command_open('try', 'key-1', sha256('{}')) as o, pawl_v1.command_close('try', 'key-1', sha256('{}'), o.fence, o.xact)`)}
	noSteps     = empty{Text: "A step appears here when a handler calls another system through step.Run."}
	noSinks     = empty{Text: "No event waits for a sink."}
	noEvents    = empty{"Events appear here until they are published. This appends one:", sql(`outbox_append('try', 'order.placed', 'order', '17', '{}')`)}
	noSchedules = empty{"A schedule enqueues a job at each of its times. This makes one:", sql(`schedule_put('try', 'try', 'hello', '{}', '{\"every_ms\": 86400000}')`)}
	noWorkers   = empty{"A worker appears here while it runs. If yours does not, read its log. This writes a service with one:", "pawl init orders"}
	noChanges   = empty{"Changes by operators appear here, with their reasons. This makes one:", "pawl queues pause try --reason 'a first change'"}
	noStory     = empty{"Enter the key of a command, a delivery, a job or an event, the id of a job, or the resource of a sequence gate. " +
		"All that is known of it appears here, in the order of time. This enqueues a job with the key order-17:", sql(`job_enqueue('try', 'hello', '{}', '{\"key\": \"order-17\"}')`)}
	noMatch = empty{Text: "No row fits. Leave out a condition."}
)
