package handlers

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
)

// A Mailer is a provider with idempotency keys: a repeated key returns the same id and sends
// nothing.
type Mailer interface {
	Send(ctx context.Context, key string, body []byte) (id string, err error)
}

// Notify sends a mail for each message, once. The call is made without an open transaction, under a
// key that all attempts share. Its record and the completion of the delivery commit together. After
// a crash before that, the next attempt sends again under the same key. A provider without keys
// would then send twice.
func Notify(mailer Mailer) consumer.LeasedHandler {
	return consumer.Handle(func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
		id, err := mailer.Send(ctx, pawl.Key("notification", a.Key), a.Payload)
		if err != nil {
			return err
		}
		return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into notification (key, provider_id) values ($1, $2)", a.Key, id)
			return err
		})
	})
}
