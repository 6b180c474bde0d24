package cli

import (
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/brokers"
)

func newDevRabbitMQ() *cobra.Command {
	return newDevBroker(devBroker{
		name: "rabbitmq", title: "RabbitMQ", start: brokers.RabbitMQ,
		url:       func(s *brokers.Server) string { return "amqp://guest:guest@" + s.Addr() + "/" },
		variables: []string{"RABBITMQ_URL", "PAWL_RABBITMQ_URL"},
		about: `Runs a RabbitMQ server: the script that PAWL_RABBITMQ_SERVER names, else the one that your system's package rabbitmq-server installs
(Debian: apt-get install rabbitmq-server; macOS: brew install rabbitmq). A start takes about ten seconds. The user is guest, the password guest.

Its management plugin is off, so the queues are yours to declare: a consumer of Pawl wants quorum queues, and makes none.`,
		examples: []string{
			"pawl dev rabbitmq --dir ./rabbitdata",
			"pawl dev rabbitmq --dir ./rabbitdata -- go run .",
			"pawl dev rabbitmq --dir ./rabbitdata --json | jq -r .url",
		},
	})
}
