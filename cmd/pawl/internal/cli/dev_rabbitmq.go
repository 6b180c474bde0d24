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
		about: `Runs a RabbitMQ server. It uses the script in PAWL_RABBITMQ_SERVER, or the installed package rabbitmq-server. A start takes 5 s to 20 s.

It needs no privileges and does not touch the system's RabbitMQ: it has its own Erlang port mapper, cookie and ports. The user is guest
with the password guest.`,
		examples: []string{
			"pawl dev rabbitmq --dir ./rabbitdata",
			"pawl dev rabbitmq --dir ./rabbitdata -- go run .",
			"pawl dev rabbitmq --dir ./rabbitdata --json | jq -r .url",
		},
	})
}
