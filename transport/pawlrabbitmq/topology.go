package pawlrabbitmq

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
)

// Arguments of a queue.
const (
	argType       = "x-queue-type"
	argSingle     = "x-single-active-consumer"
	argLimit      = "x-delivery-limit"
	argDeadLetter = "x-dead-letter-exchange"
	argTTL        = "x-message-ttl"
	argExpires    = "x-expires"
	argMaxLength  = "x-max-length"
	argMaxBytes   = "x-max-length-bytes"
	argOverflow   = "x-overflow"
)

type queueFacts struct {
	kind      string // quorum, classic, stream
	durable   bool
	arguments map[string]string // as text
	reported  map[string]bool   // arguments that RabbitMQ reported, set or not
	policies  bool              // arguments include policies
	version   string            // of the broker
	blind     error             // why the arguments are unknown
}

func (f queueFacts) has(argument string) bool { return f.arguments[argument] != "" }

func (f queueFacts) major() int {
	n, _ := strconv.Atoi(strings.SplitN(f.version, ".", 2)[0])
	return n
}

// look checks that a queue exists, and reads its arguments from the management API or by AMQP.
func look(ctx context.Context, conn *amqp.Connection, queue, management string) (f queueFacts, err error) {
	err = onChannel(ctx, conn, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	switch {
	case err != nil:
		return f, err
	case management != "":
		f, err = askManagement(ctx, management, conn.Config.Vhost, queue)
	default:
		f, err = inspect(ctx, conn, queue)
	}
	f.version, _ = conn.Properties["version"].(string)
	return f, err
}

// onChannel runs one call on its own channel, because a refusal closes the channel.
func onChannel(ctx context.Context, conn *amqp.Connection, call func(*amqp.Channel) error) error {
	return do(ctx, func() error {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		defer func() { _ = ch.Close() }()
		return call(ch)
	})
}

// probe is a value of a wrong type, so no queue has it and none can be declared with it.
const probe = "pawl-probe"

// guarded reports whether a declaration has a wrong argument that RabbitMQ refuses for a new queue
// too. Then it cannot create a queue that was deleted meanwhile. x-delivery-limit is no guard,
// because RabbitMQ 3.10 takes any value.
func guarded(args amqp.Table) bool {
	return args[argType] == probe || args[argSingle] == probe || args[argTTL] == probe
}

// maxProbes bounds the declarations of one look. A queue does not have more arguments.
const maxProbes = 24

// inspect finds the arguments of a queue. AMQP has no request for them, but RabbitMQ refuses a
// declaration that differs from the queue, and names one argument with its value. So inspect
// declares wrong values until it knows all. Each declaration fails, also if the queue is missing.
func inspect(ctx context.Context, conn *amqp.Connection, queue string) (queueFacts, error) {
	f := queueFacts{durable: true, arguments: map[string]string{}, reported: map[string]bool{}}
	args := amqp.Table{argType: probe, argSingle: probe, argTTL: probe, argLimit: probe, argDeadLetter: int32(0)}
	autoDelete := false
	for range maxProbes {
		if !guarded(args) {
			f.kind = kindOf(args)
			return f, nil
		}
		err := onChannel(ctx, conn, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(queue, f.durable, autoDelete, false, false, args)
			return err
		})
		var refusal *amqp.Error
		switch {
		// A stream has none of the other arguments, and equals this declaration.
		case err == nil:
			f.kind = kindOf(args)
			return f, nil
		case !errors.As(err, &refusal):
			return f, err
		}
		name, value, ok := difference(refusal)
		switch {
		case !ok || f.reported[name]:
			f.blind = err
			return f, nil
		case name == "durable":
			f.durable = value == "true"
		case name == "auto_delete":
			autoDelete = value == "true"
		default:
			f.learn(name, value, args)
		}
		f.reported[name] = true
	}
	f.blind = errors.New("the queue has too many arguments")
	return f, nil
}

func kindOf(args amqp.Table) string {
	if kind, is := args[argType].(string); is {
		return kind
	}
	return "classic"
}

// learn records the value of an argument, "" for none, and uses it in later declarations.
func (f *queueFacts) learn(name, value string, args amqp.Table) {
	if value == "" {
		delete(args, name)
		return
	}
	f.arguments[name] = value
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		args[name] = n
	} else if value == "true" || value == "false" {
		args[name] = value == "true"
	} else {
		args[name] = value
	}
}

// inequivalent matches "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received none
// but current is the value '60000' of type 'signedint'", or "received 'false' but current is
// 'true'".
var inequivalent = regexp.MustCompile(`(?s)inequivalent arg '([^']+)' for queue .*: received .* but current is (?:(none)$|the value '(.*)' of type '\w+'|'(.*)')`)

// difference reads from a refusal which argument differs, and the queue's value; "" if it has none.
func difference(e *amqp.Error) (name, value string, ok bool) {
	m := inequivalent.FindStringSubmatch(e.Reason)
	if e.Code != amqp.PreconditionFailed || m == nil {
		return "", "", false
	}
	return m[1], m[3] + m[4], true
}

// unfit returns an error if the queue cannot keep this package's guarantees, with the fix.
func (c Config) unfit(queue string, f queueFacts) error {
	refuse := func(hint, format string, args ...any) error {
		return &pawl.Error{Op: "rabbitmq.open", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("the queue %q "+format, append([]any{queue}, args...)...), Hint: hint}
	}
	switch {
	case f.kind == "stream":
		return refuse("consume a quorum queue: an acknowledgement removes nothing from a stream", "is a stream")
	case f.blind != nil && c.OrderingKey != nil:
		return refuse("grant the user the permission to configure the queue, or set Config.Management",
			"cannot be inspected, and OrderingKey needs a single active consumer: %w", f.blind)
	case f.blind != nil:
		return nil
	case f.kind != "quorum" && !c.AllowClassic:
		return refuse("declare it with x-queue-type quorum, or set Config.AllowClassic", "is a %s queue: it does not count deliveries", f.kind)
	case c.OrderingKey != nil && f.arguments[argSingle] != "true":
		return refuse("declare it with x-single-active-consumer, or leave OrderingKey out", "has no single active consumer: %w", errNoOrder)
	}
	return nil
}

// defaultLimit is the default delivery limit of a quorum queue in RabbitMQ 4.
const defaultLimit = 20

// warnings lists how RabbitMQ may drop messages that have no outcome yet.
func (f queueFacts) warnings(queue string) (all []string) {
	warn := func(format string, args ...any) {
		all = append(all, fmt.Sprintf("the queue %q "+format, append([]any{queue}, args...)...))
	}
	if f.blind != nil {
		warn("cannot be inspected, so its delivery limit, dead letter exchange and TTL are not checked: grant the permission to configure it, or set Config.Management (%v)", f.blind)
		return all
	}
	unseen := ""
	if !f.policies {
		unseen = "; policies were not checked: set Config.Management"
	}
	limit, _ := strconv.Atoi(f.arguments[argLimit])
	if limit == 0 && f.kind == "quorum" && f.major() >= 4 {
		limit = defaultLimit
	}
	if limit > 0 && !f.has(argDeadLetter) {
		warn("drops a message after %d redeliveries, as it has no dead letter exchange: set one by a policy, or delivery-limit -1%s", limit, unseen)
	}
	if f.has(argTTL) && !f.has(argDeadLetter) {
		warn("drops a message that was not consumed within %s ms (message TTL): set a dead letter exchange%s", f.arguments[argTTL], unseen)
	}
	if (f.has(argMaxLength) || f.has(argMaxBytes)) && !strings.HasPrefix(f.arguments[argOverflow], "reject-publish") {
		warn("drops its oldest messages at its maximum length, consumed or not: set overflow to reject-publish%s", unseen)
	}
	if f.has(argExpires) {
		warn("is deleted with its messages after %s ms without a consumer (x-expires)%s", f.arguments[argExpires], unseen)
	}
	if !f.durable {
		warn("is not durable: a restart of the broker loses its messages")
	}
	return all
}
