// Package pawlnats receives from and publishes to NATS JetStream.
package pawlnats
