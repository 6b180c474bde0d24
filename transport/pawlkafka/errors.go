package pawlkafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl/transport/internal/adapter"
)

func wrap(op, about string, err error) error {
	return adapter.Wrap(op, err, func(err error) (short, hint string) { return diagnose(about, err) })
}

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
		return fmt.Sprintf("topic %q does not exist", about), "create it with its partitions and retention, or check the cluster's address; Pawl creates no topics"
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Sprintf("no access to topic %q", about), "a source needs Read and DescribeConfigs on the topic, a sink needs Write"
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return fmt.Sprintf("no access to group %q", about), "allow Read on the group"
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "the credentials were rejected: " + err.Error(), "check the user, the password and the mechanism of kgo.SASL"
	case errors.As(err, &eof):
		return err.Error(), "check whether the listener requires TLS (kgo.DialTLSConfig) or SASL (kgo.SASL)"
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return "the members of the group use different assignors", "stop members that use another assignor than cooperative-sticky, or choose another group"
	case errors.Is(err, kerr.MessageTooLarge):
		return err.Error(), "raise max.message.bytes of the topic, or send a reference"
	case errors.As(err, &network), errors.As(err, &name):
		text := err.Error()
		if at := strings.LastIndex(text, "dial "); at >= 0 {
			text = text[at:]
		}
		return "broker unreachable: " + text, "check kgo.SeedBrokers, the advertised listeners of the brokers, and the network to them"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time: " + err.Error(), "check kgo.SeedBrokers, the advertised listeners of the brokers, and any proxy or firewall in between"
	}
	return "", ""
}
