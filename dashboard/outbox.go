package dashboard

import "github.com/pawl-go/pawl/ops"

// outbox lists unpublished events.
func outbox(v *view) error {
	s := ops.Outbox{Sink: v.param("sink"), EventType: v.param("type"), Heads: v.param("heads") == "yes", After: v.param("after")}
	if status := v.param("status"); status != "" {
		s.Statuses = []ops.Status{ops.Status(status)}
	}
	o, err := see(v, glance)
	if err != nil {
		return err
	}
	v.ReadAt = o.ReadAt
	var sinks []ops.Queue
	for _, q := range o.Queues {
		if _, is := isOutbox(q.Name); is {
			sinks = append(sinks, q)
		}
	}
	lag := v.queueTable(sinks, o.ReadAt)
	lag.Caption, lag.Empty = "Sinks: each is a queue", "No event waits for a sink."
	v.add(lag, heading("Events"), filter{Address: v.Link.To("outbox"), Fields: []field{{Name: "sink", Label: "sink", Value: s.Sink}, {Name: "type", Label: "type of event", Value: s.EventType},
		statusField(v.param("status"), ops.JobStatuses()), {Name: "heads", Label: "only what each aggregate waits for", Value: v.param("heads"), Options: []string{"yes"}}}})
	found, err := see(v, s.List)
	if err != nil {
		return err
	}
	t := table{Caption: "Events that are not published yet", Empty: "No event fits.", Head: []string{"#job", "event", "type", "aggregate", "sink", "status", "#attempts", "appended", "last error"}}
	for _, e := range found.Rows {
		t.Rows = append(t.Rows, []cell{linked(e.JobID, v.Link.Job(e.JobID)), mono(e.EventID), plain(e.EventType), mono(e.AggregateType + " " + e.AggregateID), plain(e.Sink), status(e.Status),
			figure(e.Attempts), plain(ago(e.CreatedAt, e.ReadAt)), plain(short(120, e.LastError))})
	}
	if found.Next != "" {
		t.Next = v.Link.To("outbox", "sink", s.Sink, "type", s.EventType, "status", v.param("status"), "heads", v.param("heads"), "after", found.Next)
	}
	v.add(t)
	return nil
}
