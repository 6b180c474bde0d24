package flow

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// retryLanded runs the worker of landed deliveries until ctx ends, starting it again if the database was away.
func (f *Flow) retryLanded(ctx context.Context) {
	for {
		err := f.retries.Run(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		f.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "flow.retries", Err: err})
		pause(ctx, time.Second)
	}
}

// retry applies a landed delivery: the same handler, in the transaction that holds the delivery's job. The inbox row
// is marked first: if the job owns the delivery no more (P4020), the handler is never entered.
func (f *Flow) retry(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error {
	d := landedDelivery(t.Job)
	if err := f.settle(ctx, tx, t.Job); err != nil {
		return err
	}
	if f.cfg.Exclusive != nil {
		err := exclude(ctx, tx, f.cfg.Exclusive(d))
		if pawl.CodeOf(err) == lockNotHad {
			return job.Snooze(jittered(time.Second))
		}
		if err != nil {
			return err
		}
	}
	return f.retryGated(ctx, tx, t.Job, d)
}

func landedDelivery(j job.Job) pawl.Delivery {
	d := pawl.Delivery{Key: text(j.Headers, headerKey), MessageID: text(j.Headers, headerMessageID), Body: j.Args, Receives: j.Attempt}
	if attributes, ok := j.Headers[headerAttributes].(map[string]any); ok && len(attributes) > 0 {
		d.Attributes = make(map[string]string, len(attributes))
		for name := range attributes {
			d.Attributes[name] = text(attributes, name)
		}
	}
	d.OrderingKey, d.SemanticKey = text(j.Headers, headerOrderingKey), text(j.Headers, headerSemanticKey)
	d.SentAt, _ = time.Parse(time.RFC3339Nano, text(j.Headers, headerSentAt)) // absent: zero
	d.ProducedAt, _ = time.Parse(time.RFC3339Nano, text(j.Headers, headerProducedAt))
	return d
}

func text(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}
