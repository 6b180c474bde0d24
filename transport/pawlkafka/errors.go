package pawlkafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
)

// wrap gives an error of the client its operation and, where we know one, the next step.
func wrap(op, about string, err error) error {
	if err == nil {
		return nil
	}
	var known *pawl.Error
	if errors.As(err, &known) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return &pawl.Error{Op: op, Err: err}
	}
	short, hint := diagnose(about, err)
	if short != "" {
		err = &cause{text: short, err: err}
	}
	return &pawl.Error{Op: op, Err: err, Hint: hint}
}

// cause says in one line what the client says in several, and keeps the client's error for errors.As.
type cause struct {
	text string
	err  error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.err }

// diagnose recognises the mistakes of a first day.
func diagnose(about string, err error) (short, hint string) {
	var topic *topicError
	if errors.As(err, &topic) {
		about = topic.topic
	}
	var eof *kgo.ErrFirstReadEOF
	var network *net.OpError
	var name *net.DNSError
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Sprintf("topic %q does not exist", about), "create it with its partitions and retention, or check the cluster; no topic is created on the way"
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Sprintf("no access to topic %q", about), "allow Read and DescribeConfigs on the topic to a source, Write to a sink"
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return fmt.Sprintf("no access to group %q", about), "allow Read on the group"
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "the credentials are refused: " + err.Error(), "check user and password of kgo.SASL, and the mechanism"
	case errors.As(err, &eof):
		return err.Error(), "check whether the listener wants TLS (kgo.DialTLSConfig) or SASL (kgo.SASL)"
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return "the members of the group do not agree on how partitions are assigned", "end members that use another assignor than cooperative-sticky, or choose another group"
	case errors.Is(err, kerr.MessageTooLarge):
		return err.Error(), "raise max.message.bytes of the topic, or send a reference"
	case errors.As(err, &network), errors.As(err, &name):
		text := err.Error()
		if at := strings.LastIndex(text, "dial "); at >= 0 {
			text = text[at:]
		}
		return "broker unreachable: " + text, "check kgo.SeedBrokers, the advertised listeners of the brokers, and the network to them"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time: " + err.Error(), "check kgo.SeedBrokers, the advertised listeners of the brokers, and what lies between: a proxy, a firewall"
	}
	return "", ""
}
