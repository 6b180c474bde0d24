package cli

import (
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
)

func newDevRabbitMQ() *cobra.Command {
	return newDevBroker(devBroker{
		name: "rabbitmq", title: "RabbitMQ", start: brokers.RabbitMQ,
		url:       func(s *brokers.Server) string { return "amqp://guest:guest@" + s.Addr() + "/" },
		variables: []string{"RABBITMQ_URL", "PAWL_RABBITMQ_URL"},
		about: `Runs a RabbitMQ server: the one whose script PAWL_RABBITMQ_SERVER names, else that of the installed package rabbitmq-server. A start
takes 5 s to 20 s.

It needs no privileges and touches no RabbitMQ of the system: it has its own Erlang port mapper, cookie and ports. Its user is guest, with the
password guest.`,
		examples: []string{
			"pawl dev rabbitmq --dir ./rabbitdata",
			"pawl dev rabbitmq --dir ./rabbitdata -- go run .",
			"pawl dev rabbitmq --dir ./rabbitdata --json | jq -r .url",
		},
	})
}
