package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/brokers"
)

func newDevKafka() *cobra.Command {
	return newDevBroker(devBroker{
		name: "kafka", title: "Apache Kafka", start: brokers.Kafka,
		url:       func(s *brokers.Server) string { return s.Addr() },
		variables: []string{"KAFKA_BOOTSTRAP_SERVERS", "PAWL_KAFKA_BROKERS"},
		about: `Runs one broker of Apache Kafka that is its own controller (KRaft): with the jars of the Kafka that PAWL_KAFKA_HOME names, else with
those that Maven fetches, 44 MB, once. It needs Java 17 or newer, by JAVA_HOME or on the PATH.

Topics are not made on the way: name them with --topic, or make them with a tool of your own.`,
		more: func(cmd *cobra.Command) func(context.Context, *brokers.Server) error {
			var topics []string
			cmd.Flags().StringArrayVar(&topics, "topic", nil, "make the topic NAME[:PARTITIONS] if it does not exist; may be repeated")
			return func(ctx context.Context, s *brokers.Server) error { return makeTopics(ctx, s, topics) }
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

// makeTopics makes topics that are named NAME or NAME:PARTITIONS.
func makeTopics(ctx context.Context, s *brokers.Server, topics []string) error {
	for _, topic := range topics {
		name, count, counted := strings.Cut(topic, ":")
		partitions := 1
		if counted {
			var err error
			if partitions, err = strconv.Atoi(count); err != nil || partitions < 1 || partitions > 10_000 {
				return fmt.Errorf("--topic %s: %q is no count of partitions, 1 to 10000", topic, count)
			}
		}
		if err := brokers.MakeKafkaTopic(ctx, s.Addr(), name, partitions); err != nil {
			return fmt.Errorf("--topic %s: %w", topic, err)
		}
	}
	return nil
}
