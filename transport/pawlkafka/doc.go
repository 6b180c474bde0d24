// Package pawlkafka receives from and publishes to Apache Kafka.
package pawlkafka
