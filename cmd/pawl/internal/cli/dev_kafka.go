package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
)

func newDevKafka() *cobra.Command {
	return newDevBroker(devBroker{
		name: "kafka", title: "Apache Kafka", start: brokers.Kafka,
		url:       func(s *brokers.Server) string { return s.Addr() },
		variables: []string{"KAFKA_BOOTSTRAP_SERVERS", "PAWL_KAFKA_BROKERS"},
		about: `Runs one Apache Kafka broker that is its own controller (KRaft). It uses the Kafka in PAWL_KAFKA_HOME, or jars that Maven downloads
once, 44 MB. It needs Java 17 or newer, in JAVA_HOME or on the PATH.

Topics are not created automatically: create them with --topic, or with your own tools.`,
		more: func(cmd *cobra.Command) func(context.Context, *brokers.Server) error {
			var topics topicFlag
			cmd.Flags().Var(&topics, "topic", "create the topic NAME[:PARTITIONS] if it does not exist; may be repeated")
			return topics.make
		},
		examples: []string{
			"pawl dev kafka --dir ./kafkadata --topic orders:6",
			"pawl dev kafka --dir ./kafkadata --topic orders -- go run .",
			"",
			"# in another shell, with the tool kcat:",
			`echo '{"id":"order-17"}' | kcat -b "$KAFKA_BOOTSTRAP_SERVERS" -t orders -H Idempotency-Key=order-17 -P`,
		},
	})
}

// topicFlag is the flag --topic. Invalid topics are refused while flags are parsed, before anything
// is downloaded or started.
type topicFlag []kafkaTopic

type kafkaTopic struct {
	name       string
	partitions int
}

const maxPartitions = 10_000 // of a topic; a broker keeps a directory for each

// Set adds a topic NAME or NAME:PARTITIONS.
func (all *topicFlag) Set(text string) error {
	name, count, counted := strings.Cut(text, ":")
	topic := kafkaTopic{name, 1}
	if counted {
		var err error
		if topic.partitions, err = strconv.Atoi(count); err != nil || topic.partitions < 1 || topic.partitions > maxPartitions {
			return fmt.Errorf("needs a number of partitions, 1 to %d, after the colon; an example is orders:6", maxPartitions)
		}
	}
	if !kafkaName.MatchString(name) || name == "." || name == ".." {
		return errors.New("is not a topic name, which has 1 to 249 letters, digits, dots, underscores and hyphens")
	}
	*all = append(*all, topic)
	return nil
}

// kafkaName matches the names that Kafka accepts (org.apache.kafka.common.internals.Topic), except
// for "." and "..".
var kafkaName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// Type is the name of the value in the help.
func (*topicFlag) Type() string { return "topic" }

func (all *topicFlag) String() string {
	var texts []string
	for _, t := range *all {
		texts = append(texts, fmt.Sprintf("%s:%d", t.name, t.partitions))
	}
	return strings.Join(texts, " ")
}

func (all *topicFlag) make(ctx context.Context, s *brokers.Server) error {
	for _, t := range *all {
		if err := brokers.MakeKafkaTopic(ctx, s.Addr(), t.name, t.partitions); err != nil {
			return fmt.Errorf("--topic %s: %w", t.name, err)
		}
	}
	return nil
}
