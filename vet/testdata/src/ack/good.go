package ack

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	confluent "github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
)

func (w *worker) sqsAfter(ctx context.Context, m types.Message) error {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", *m.MessageId); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	_, err = w.queue.DeleteMessage(ctx, &sqs.DeleteMessageInput{ReceiptHandle: m.ReceiptHandle})
	return err
}

// The next message's commit comes after this one's acknowledgement.
func (w *worker) loopAfter(ctx context.Context) error {
	for {
		m, err := w.reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		if len(m.Value) == 0 { // nothing to do
			if err := w.reader.CommitMessages(ctx, m); err != nil {
				return err
			}
			continue
		}
		tx, err := w.pool.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", m.Key); err != nil {
			tx.Rollback(ctx)
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		if err := w.reader.CommitMessages(ctx, m); err != nil {
			return err
		}
	}
}

func (w *worker) franzAfter(ctx context.Context) error {
	for {
		fetches := w.kafka.PollFetches(ctx)
		tx, err := w.pool.Begin(ctx)
		if err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			if _, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", r.Key); err != nil {
				return err
			}
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		if err := w.kafka.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
	}
}

func (w *worker) poison(ctx context.Context, d amqp.Delivery) error {
	if len(d.Body) == 0 {
		return d.Ack(false)
	}
	if err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", d.MessageId)
		return err
	}); err != nil {
		return d.Nack(false, true)
	}
	return d.Ack(false)
}

// The deferred function looks at the error first.
func (w *worker) deferredIf(ctx context.Context, m *message.Message) (err error) {
	defer func() {
		if err != nil {
			m.Nack()
			return
		}
		m.Ack()
	}()
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err = tx.ExecContext(ctx, "INSERT INTO payments (id) VALUES ($1)", m.UUID); err != nil {
		return err
	}
	return tx.Commit()
}

func (w *worker) batch(ctx context.Context, s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	var batch []*sarama.ConsumerMessage
	for m := range c.Messages() {
		batch = append(batch, m)
		if len(batch) < 100 {
			continue
		}
		tx, err := w.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for _, b := range batch {
			if _, err := tx.ExecContext(ctx, "INSERT INTO payments (id) VALUES ($1)", b.Key); err != nil {
				tx.Rollback()
				return err
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		for _, b := range batch {
			s.MarkMessage(b, "")
		}
		s.Commit()
		batch = nil
	}
	return nil
}

func (w *worker) helpersAfter(ctx context.Context, c *confluent.Consumer, m *confluent.Message) error {
	if err := w.save(ctx, m); err != nil {
		return err
	}
	w.done(c, m)
	return nil
}

func (w *worker) count(ctx context.Context) error {
	_, err := w.pool.Exec(ctx, "UPDATE counts SET n = n + 1")
	return err
}

func (w *worker) insideAfter(ctx context.Context, m jetstream.Msg) error {
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", m.Data())
		return err
	})
	if err != nil {
		return m.Nak()
	}
	return m.DoubleAck(ctx)
}

// The loss of a sample is accepted.
func (w *worker) sampled(ctx context.Context, m *message.Message) error {
	m.Ack() //pawl:allow ackbeforecommit samples may be lost
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO samples (id) VALUES ($1)", m.UUID)
		return err
	})
}

func (w *worker) unreasoned(ctx context.Context, m *message.Message) error {
	m.Ack() /* want "needs a reason" */ //pawl:allow ackbeforecommit
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO samples (id) VALUES ($1)", m.UUID)
		return err
	})
}

// A job table of our own has an Ack that is a row.
type jobs struct{}

func (jobs) Ack(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(ctx, "DELETE FROM jobs WHERE id = $1", id)
	return err
}

func (w *worker) ownQueue(ctx context.Context, q jobs, id string) error {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if err := q.Ack(ctx, tx, id); err != nil {
		return err
	}
	fmt.Println("acknowledged", id)
	return tx.Commit(ctx)
}

// A statement after the effect may be lost.
func (w *worker) counted(ctx context.Context, m *message.Message) error {
	if _, err := w.db.ExecContext(ctx, "INSERT INTO payments (id) VALUES ($1)", m.UUID); err != nil {
		m.Nack()
		return err
	}
	m.Ack()
	_, err := w.db.ExecContext(ctx, "UPDATE counts SET n = n + 1")
	return err
}

// The next message of the batch commits after this one's acknowledgement.
func (w *worker) sqsLoopAfter(ctx context.Context, ms []types.Message) error {
	for _, m := range ms {
		tx, err := w.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO payments (id) VALUES ($1)", *m.MessageId); err != nil {
			tx.Rollback()
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		if _, err := w.queue.DeleteMessage(ctx, &sqs.DeleteMessageInput{ReceiptHandle: m.ReceiptHandle}); err != nil {
			return err
		}
	}
	return nil
}
