// Command pawl-brokers is pawl with the clients of Kafka, NATS and RabbitMQ, for pawl-brokers demo
// --broker kafka. It is a separate module, so that pawl depends on none of them.
package main

import (
	"os"

	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/cmd/pawl/internal/cli"
)

func main() {
	broker.Register("kafka", kafka)
	broker.Register("nats", nats)
	broker.Register("rabbitmq", rabbitmq)
	os.Exit(cli.Main())
}
