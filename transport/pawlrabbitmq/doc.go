// Package pawlrabbitmq receives from and publishes to RabbitMQ (AMQP 0-9-1, quorum queues).
package pawlrabbitmq
