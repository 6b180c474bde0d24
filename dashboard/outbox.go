package dashboard

import (
	"strings"

	"github.com/pawl-go/pawl/ops"
)

func outbox(v *view, o ops.Overview) error {
	s := ops.Outbox{Sink: v.param("sink"), EventType: v.param("type"), Statuses: v.statuses(), Heads: v.param("heads") == "yes", After: v.param("after")}
	var sinks []ops.Queue
	for _, q := range o.Queues {
		if strings.HasPrefix(q.Name, "outbox/") {
			sinks = append(sinks, q)
		}
	}
	lag := v.queueTable(sinks, o.ReadAt)
	lag.Caption, lag.Empty = "Sinks: each is a queue", noSinks
	v.add(lag, heading("Events"))
	v.filter("outbox", field{Name: "sink", Label: "sink"}, field{Name: "type", Label: "type of event"}, statusField(ops.JobStatuses()), only("heads", "only what each aggregate waits for"))
	t := table{Caption: "Events that are not published yet", Empty: noEvents, Head: []string{"#job", "event", "type", "aggregate", "sink", "status", "#attempts", "appended", "last error"}}
	return list(v, t, s.List, func(e ops.OutboxEvent) []cell {
		return []cell{linked(e.JobID, v.Link.Job(e.JobID)), mono(e.EventID), plain(e.EventType), mono(e.AggregateType + " " + e.AggregateID), plain(e.Sink), status(e.Status),
			figure(e.Attempts), plain(ago(e.CreatedAt, e.ReadAt)), plain(short(120, e.LastError))}
	})
}
