package pawlnats

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

func wrap(op, where string, err error) error {
	return adapter.Wrap(op, err, func(err error) (short, hint string) { return diagnose(where, err) })
}

// diagnose recognises common setup mistakes. where is STREAM or STREAM/CONSUMER.
func diagnose(where string, err error) (short, hint string) {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Sprintf("the stream of %s does not exist", where), "create it, or check the account and the domain of the connection"
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrConsumerDoesNotExist), errors.Is(err, jetstream.ErrConsumerDeleted):
		return fmt.Sprintf("the consumer %s does not exist", where),
			"create it, durable, with acks explicit and max-deliver -1: Pawl creates none, because a new one delivers everything again"
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		return fmt.Sprintf("%s is a push consumer", where), "create a pull consumer: one without a deliver subject"
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "JetStream is not enabled", "enable it in the server (nats-server -js) and for this account"
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return "JetStream does not answer", "check that the server runs JetStream, that the stream has a leader, and the domain of the connection"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrPermissionViolation):
		return err.Error(), "allow the subjects listed in docs/guides/nats.md"
	case errors.Is(err, errTooLarge):
		return fmt.Sprintf("the consumer %s is blocked: %v", where, err), "remove the consumer's MaxRequestMaxBytes, or raise it above the largest message with its subject and headers"
	case errors.Is(err, nats.ErrConnectionClosed):
		return "the connection is closed", "connect with nats.MaxReconnects(-1), and close the connection after the consumer has ended"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return "no answer in time", "check the server and the network to it; if it never answers, check this user's permissions on $JS.API and the inbox"
	}
	return "", ""
}

// needsOperator reports an error that does not pass within seconds.
func needsOperator(err error) bool {
	return slices.ContainsFunc([]error{jetstream.ErrStreamNotFound, jetstream.ErrConsumerNotFound, jetstream.ErrConsumerDoesNotExist, jetstream.ErrNotPullConsumer,
		jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount, nats.ErrConnectionClosed, errTooLarge, pawl.ErrArgumentInvalid},
		func(known error) bool { return errors.Is(err, known) })
}
