package pawlrabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

var (
	errFinished = errors.New("the source is finished")
	errLost     = errors.New("the connection was lost")
)

func wrap(op, where string, err error) error {
	return adapter.Wrap(op, err, func(err error) (short, hint string) { return diagnose(where, err) })
}

// diagnose recognises common setup errors and closed channels. where is a queue or an exchange.
func diagnose(where string, err error) (short, hint string) {
	var exception *amqp.Error
	var network *net.OpError
	switch {
	case errors.Is(err, amqp.ErrCredentials), errors.Is(err, amqp.ErrSASL):
		return "RabbitMQ refuses the user or the password", "check the credentials in the URL; the user guest may connect from localhost only"
	case errors.Is(err, amqp.ErrVhost):
		return "RabbitMQ refuses the virtual host", "create it, or grant the user access to it"
	case errors.As(err, &exception):
		return diagnoseException(where, exception)
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time", "check the broker and the network: a proxy, a firewall, a full host"
	case errors.As(err, &network):
		return "the broker is unreachable: " + network.Error(), "check the address, and that RabbitMQ runs"
	}
	return "", ""
}

func diagnoseException(where string, e *amqp.Error) (short, hint string) {
	text := fmt.Sprintf("%s (%d)", e.Reason, e.Code)
	switch {
	case e.Code == amqp.NotFound && strings.Contains(e.Reason, "no queue"):
		return fmt.Sprintf("the queue %q does not exist", where), "declare it, with x-queue-type quorum; this package declares nothing"
	case e.Code == amqp.NotFound && strings.Contains(e.Reason, "no exchange"):
		return fmt.Sprintf("the exchange %q does not exist", where), "declare it; this package declares nothing"
	case e.Code == amqp.AccessRefused:
		return text, "grant the permissions that the guide of this package names"
	case e.Code == amqp.PreconditionFailed && strings.Contains(e.Reason, "delivery acknowledgement"):
		return text, "a handler took longer than the broker's consumer_timeout: store such deliveries first (StoreFirst), or raise consumer_timeout"
	case e.Code == amqp.NotAllowed && strings.Contains(e.Reason, "vhost"):
		return text, "create the virtual host, or check the path of the URL"
	case e.Code == amqp.ResourceLocked:
		return text, "another connection has the queue exclusively: declare it without exclusive"
	}
	return text, ""
}

// needsOperator reports an error that a pause of seconds does not fix.
func needsOperator(err error) bool {
	var answer *amqp.Error
	switch {
	case errors.Is(err, pawl.ErrArgumentInvalid), errors.Is(err, amqp.ErrCredentials), errors.Is(err, amqp.ErrSASL), errors.Is(err, amqp.ErrVhost):
		return true
	case errors.As(err, &answer):
		return answer.Code == amqp.NotFound || answer.Code == amqp.AccessRefused || answer.Code == amqp.ResourceLocked
	}
	return false
}
