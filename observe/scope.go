package observe

import (
	"strings"

	"github.com/pawl-go/pawl"
)

// named tells, by the first word of an event's Op, whether its Scope is a name from your code: a
// consumer, a queue, a table, a scheme. The scope of a command may name a tenant, which callers
// choose. The scope of a step may be a command's.
var named = map[string]bool{
	"archive": true, "delivery": true, "consumer": true, "guard": true, "inbox": true, "job": true, "job_key": true, "kafka": true, "lane": true,
	"nats": true, "observe": true, "outbox": true, "rabbitmq": true, "rollup": true, "schedule": true, "service": true, "sqs": true, "webhook": true, "worker": true,
	"command": false, "stale_write": false, "step": false,
}

// Scope returns the scope of an event if it is a name from your code: a consumer, a queue, a table
// or a scheme. For other events it returns "", because scopes of commands and steps may name a
// tenant.
func Scope(e pawl.Event) string {
	room, _, _ := strings.Cut(e.Op, ".")
	if named[room] {
		return e.Scope
	}
	return ""
}
