package cli

import (
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
)

func newDevNATS() *cobra.Command {
	return newDevBroker(devBroker{
		name: "nats", title: "NATS with JetStream", start: brokers.NATS,
		url:       func(s *brokers.Server) string { return "nats://" + s.Addr() },
		variables: []string{"NATS_URL", "PAWL_NATS_URL"},
		about: `Runs a NATS server with JetStream. It uses the program in PAWL_NATS_SERVER, or nats-server on the PATH if it is 2.10 or newer, or one
that it builds once from its Go module.

JetStream writes a message to its file before it confirms it, and by default syncs the file every two minutes. A server that is killed
loses no message; a machine that loses power may.`,
		examples: []string{
			"pawl dev nats --dir ./natsdata",
			"pawl dev nats --dir ./natsdata -- go run .",
			"pawl dev nats --dir ./natsdata --json | jq -r .url",
			"",
			"# in another shell, with the tool nats:",
			"nats stream add ORDERS --subjects 'orders.>' --defaults",
			"nats consumer add ORDERS billing --pull --ack explicit --deliver all --max-deliver -1 --defaults",
			`nats pub orders.placed '{"id":"order-17"}' -H Idempotency-Key:order-17`,
		},
	})
}
