package dashboard

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

// consumers lists the consumers that have reported their retention.
func consumers(v *view, o ops.Overview) error {
	t := table{Caption: "Consumers", Empty: noConsumers, Head: []string{"consumer", "remembers its deliveries for", "a message may be delivered for", "last report"}}
	for _, c := range o.Consumers {
		remembers, horizon := "ever", "not known"
		if c.Remembers > 0 {
			remembers = span(c.Remembers)
		}
		row := []cell{linked(c.Name, v.Link.Consumer(c.Name)), plain(remembers), plain(horizon), plain(ago(c.SeenAt, o.ReadAt))}
		if c.Redelivery > 0 {
			row[2] = plain(span(c.Redelivery))
			if c.Remembers > 0 && c.Remembers < c.Redelivery {
				row[1].Class = "bad" // a late copy would run as new
			}
		}
		t.Rows = append(t.Rows, row)
	}
	v.add(t, verbs{{Text: "Sequence gates", Link: v.Link.To("gates")}})
	return nil
}

func consumer(v *view) error {
	s := ops.Deliveries{Consumer: v.param("name"), After: v.param("after")}
	v.Title = "Consumer " + s.Consumer
	stored := storedQueue(s.Consumer)
	v.add(verbs{{Text: "Dead letters", Link: v.Link.To("dead-letters", "queue", stored)}, {Text: "Stored deliveries", Link: v.Link.To("jobs", "queue", stored)},
		{Text: "Sequence gates", Link: v.Link.To("gates", "consumer", s.Consumer)}})
	v.deliveryFilter(s.Consumer)
	var err error
	if s.From, err = v.instant("from"); err != nil {
		return err
	}
	if s.Until, err = v.instant("until"); err != nil {
		return err
	}
	v.add(heading("Kept deliveries"))
	t := table{Caption: "Deliveries that were kept as they came, in the order in which they were received", Empty: noKept,
		Head: []string{"key", "received", "took effect", "job", "kept"}}
	err = list(v, t, s.List, func(d ops.Delivery) []cell {
		v.ReadAt = d.ReadAt
		return []cell{linked(short(80, d.Key), v.Link.Delivery(d.Consumer, d.Key)), at(d.ReceivedAt), at(d.ProcessedAt), v.jobCell(d.JobID), plain(octets(d.KeptOctets))}
	})
	if err != nil {
		return err
	}
	if s.After == "" {
		v.history("consumer", s.Consumer)
	}
	return nil
}

// storedQueue is the queue of a consumer's stored deliveries and dead letters.
func storedQueue(consumer string) string { return "inbox/" + consumer }

func (v *view) deliveryFilter(consumer string) {
	v.add(filter{v.Link.To("delivery"), []field{{Name: "consumer", Label: "consumer", Value: consumer}, {Name: "key", Label: "key of a delivery"}}})
}

func (v *view) instant(name string) (time.Time, error) {
	value := v.param(name)
	if value == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, value); err == nil {
			return t, nil
		}
	}
	return time.Time{}, badParameter{name, value, "a time such as 2026-01-31 or 2026-01-31T12:00:00Z"}
}

func delivery(v *view) error {
	ref := ops.DeliveryRef{Consumer: v.param("consumer"), Key: v.param("key")}
	if ref.Key == "" {
		v.deliveryFilter(ref.Consumer)
		return nil
	}
	v.Title = "Delivery " + ref.Key
	d, err := see(v, ref.Get)
	if errors.Is(err, pawl.ErrNotFound) {
		return v.forgotten(ref)
	}
	if err != nil {
		return err
	}
	v.ReadAt = d.ReadAt
	v.add(facts{{"consumer", linked(d.Consumer, v.Link.Consumer(d.Consumer))}, {"key", v.storyCell(d.Key, d.Consumer)}, {"remembered", yes(d.Remembered, "yes: a copy is a duplicate", "no: a copy would run as new")},
		{"received", at(d.ReceivedAt)}, {"took effect", at(d.ProcessedAt)}, {"job", v.jobCell(d.JobID)}, {"status of the job", status(d.JobStatus)}, {"result", plain(d.ResultRef)},
		{"kept as it came", yes(d.Kept, octets(d.KeptOctets), "no")}, {"fingerprint", mono(d.Fingerprint)}})
	v.add(v.actions(operator.Delivery(d)))
	v.byHand(d.Changes)
	return nil
}

// forgotten shows a delivery without an inbox row. It may be among the kept deliveries.
func (v *view) forgotten(ref ops.DeliveryRef) error {
	changes, err := see(v, ref.Changes)
	if err != nil {
		return err
	}
	v.add(note{Class: "notice", Text: "The consumer remembers no such delivery: a copy would run as new.", Hint: "if it was kept as it came, it can be replayed"},
		facts{{"consumer", linked(ref.Consumer, v.Link.Consumer(ref.Consumer))}, {"key", v.storyCell(ref.Key, ref.Consumer)}})
	v.add(v.actions(operator.Delivery(ops.Delivery{Consumer: ref.Consumer, Key: ref.Key})))
	v.byHand(changes)
	return nil
}

func gates(v *view) error {
	s := ops.SequenceGates{Consumer: v.param("consumer"), Held: v.param("held") == "yes", After: v.param("after")}
	v.filter("gates", field{Name: "consumer", Label: "consumer"}, only("held", "only with held deliveries"))
	t := table{Caption: "Sequence gates: deliveries of a resource take effect in the order of their numbers", Empty: noGates,
		Head: []string{"resource", "consumer", "#last", "#held", "#lowest held", "since"}}
	return list(v, t, s.List, func(g ops.SequenceGate) []cell {
		v.ReadAt = g.ReadAt
		return []cell{linked(g.Resource, v.Link.Gate(g.Consumer, g.Resource)), linked(g.Consumer, v.Link.Consumer(g.Consumer)), optional(g.Last), alarming(g.Held, "odd"),
			optional(g.NextHeld), plain(ago(g.Since, g.ReadAt))}
	})
}

// optional formats a number that may be missing.
func optional(n *int64) cell {
	if n == nil {
		return cell{}
	}
	return plain(*n)
}

func gate(v *view) error {
	ref := ops.SequenceGateRef{Consumer: v.param("consumer"), Resource: v.param("resource")}
	v.Title = "Sequence gate " + ref.Resource
	g, err := see(v, ref.Get)
	if err != nil {
		return err
	}
	v.ReadAt = g.ReadAt
	if g.Last != nil && g.NextHeld != nil && *g.NextHeld > *g.Last+1 {
		v.add(note{Class: "notice", Text: fmt.Sprintf("Number %d has not taken effect. What came after it waits for it.", *g.Last+1),
			Hint: "look for it at its sender and among the dead letters of the consumer; give it up if it will not come"})
	}
	v.add(facts{{"consumer", linked(g.Consumer, v.Link.Consumer(g.Consumer))}, {"last number that took effect", optional(g.Last)}, {"held", alarming(g.Held, "odd")},
		{"lowest number held", optional(g.NextHeld)}, {"held since", at(g.Since)}})
	v.add(v.actions(operator.SequenceGate(g)))
	v.byHand(g.Changes)
	return nil
}
