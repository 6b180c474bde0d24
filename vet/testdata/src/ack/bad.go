package ack

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	confluent "github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"gorm.io/gorm"
)

type worker struct {
	pool   *pgxpool.Pool
	db     *sql.DB
	queue  *sqs.Client
	reader *kafka.Reader
	kafka  *kgo.Client
}

// The queue forgets the message, then the commit fails.
func (w *worker) sqs(ctx context.Context, m types.Message) error {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", *m.MessageId); err != nil {
		return err
	}
	if _, err := w.queue.DeleteMessage(ctx, &sqs.DeleteMessageInput{ReceiptHandle: m.ReceiptHandle}); err != nil { // want "acknowledged before the transaction commits"
		return err
	}
	return tx.Commit(ctx)
}

// In a loop over a batch.
func (w *worker) sqsLoop(ctx context.Context) error {
	out, err := w.queue.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{})
	if err != nil {
		return err
	}
	for _, m := range out.Messages {
		tx, err := w.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO payments (id) VALUES ($1)", *m.MessageId)
		if err == nil {
			w.queue.DeleteMessage(ctx, &sqs.DeleteMessageInput{ReceiptHandle: m.ReceiptHandle}) // want "acknowledged before the transaction commits"
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) kafkaGo(ctx context.Context) error {
	for {
		m, err := w.reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		if err := w.reader.CommitMessages(ctx, m); err != nil { // want "acknowledged before the transaction commits"
			return err
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
	}
}

func (w *worker) deferred(ctx context.Context, m *message.Message) error {
	defer m.Ack() // want "deferred"
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO payments (id) VALUES ($1)", m.UUID); err != nil {
		return err
	}
	return tx.Commit()
}

func (w *worker) deferredClosure(ctx context.Context, d amqp.Delivery) error {
	defer func() { // want "deferred"
		if err := d.Ack(false); err != nil {
			fmt.Println(err)
		}
	}()
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", d.MessageId)
		return err
	})
}

func (w *worker) inside(ctx context.Context, m jetstream.Msg) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", m.Data()); err != nil {
			return err
		}
		return m.Ack() // want "inside the transaction"
	})
}

func (w *worker) deferredCommit(ctx context.Context, s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) (err error) {
	for m := range c.Messages() {
		err = func() (err error) {
			tx, err := w.db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() {
				if err != nil {
					tx.Rollback()
					return
				}
				err = tx.Commit()
			}()
			if _, err = tx.ExecContext(ctx, "INSERT INTO payments (id) VALUES ($1)", m.Key); err != nil {
				return err
			}
			s.MarkMessage(m, "") // want "deferred commit"
			return nil
		}()
	}
	return err
}

func (w *worker) franz(ctx context.Context) error {
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
		if err := w.kafka.CommitUncommittedOffsets(ctx); err != nil { // want "acknowledged before the transaction commits"
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
	}
}

func (w *worker) done(c *confluent.Consumer, m *confluent.Message) {
	if _, err := c.CommitMessage(m); err != nil {
		fmt.Println(err)
	}
}

func (w *worker) save(ctx context.Context, m *confluent.Message) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", m.Key)
		return err
	})
}

// Both in functions of their own.
func (w *worker) helpers(ctx context.Context, c *confluent.Consumer, m *confluent.Message) error {
	w.done(c, m) // want "acknowledged before the transaction commits"
	return w.save(ctx, m)
}

func orm(db *gorm.DB, d amqp.Delivery) error {
	return db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Exec("INSERT INTO payments (id) VALUES (?)", d.MessageId).Error; err != nil {
			return err
		}
		return d.Ack(false) // want "inside the transaction"
	})
}

// Whatever does not panic is acknowledged.
func (w *worker) recovered(ctx context.Context, d amqp.Delivery) error {
	defer func() { // want "deferred"
		if r := recover(); r != nil {
			d.Nack(false, true)
			return
		}
		d.Ack(false)
	}()
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", d.MessageId); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// A single statement commits by itself.
func (w *worker) single(ctx context.Context, m *message.Message) error {
	m.Ack() // want "before its statement runs"
	_, err := w.db.ExecContext(ctx, "INSERT INTO payments (id) VALUES ($1)", m.UUID)
	return err
}

func (w *worker) singleDeferred(ctx context.Context, m *message.Message) error {
	defer m.Ack() // want "also if its statement fails"
	_, err := w.db.ExecContext(ctx, "INSERT INTO payments (id) VALUES ($1)", m.UUID)
	return err
}

type delivery struct{ ID string }

type queue interface {
	Delete(ctx context.Context, d delivery) error
}

// A queue of the user's own.
func (w *worker) ownQueueFirst(ctx context.Context, q queue, d delivery) error {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", d.ID); err != nil {
		return err
	}
	if err := q.Delete(ctx, d); err != nil { // want "acknowledged before the transaction commits"
		return err
	}
	return tx.Commit(ctx)
}

// The last that is deferred runs first.
func (w *worker) bothDeferred(ctx context.Context, m *message.Message) (err error) {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = tx.Commit() }()
	defer m.Ack() // want "deferred"
	_, err = tx.ExecContext(ctx, "INSERT INTO payments (id) VALUES ($1)", m.UUID)
	return err
}
