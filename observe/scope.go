package observe

import (
	"strings"

	"github.com/pawl-go/pawl"
)

// named says, by the first word of an event's Op, whether its Scope is a name from your code: a consumer, a queue, a table, a
// scheme. The scope of a command holds a tenant, which is anybody's choice; that of an effect may be a command's.
var named = map[string]bool{
	"archive": true, "delivery": true, "consumer": true, "guard": true, "inbox": true, "job": true, "kafka": true, "lane": true, "observe": true, "outbox": true, "rollup": true,
	"schedule": true, "sqs": true, "webhook": true, "worker": true,
	"command": false, "stale_write": false, "step": false,
}

// Scope is the scope of an event if it is a name from your code: a consumer, a queue, a table or a scheme; else "". Events of
// commands and effects have none, because theirs may name a tenant.
func Scope(e pawl.Event) string {
	room, _, _ := strings.Cut(e.Op, ".")
	if named[room] {
		return e.Scope
	}
	return ""
}
