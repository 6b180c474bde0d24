// Package sarama has the names that the test data uses.
package sarama

type ConsumerMessage struct{ Key, Value []byte }

type ConsumerGroupSession interface {
	MarkMessage(msg *ConsumerMessage, metadata string)
	Commit()
}

type ConsumerGroupClaim interface {
	Messages() <-chan *ConsumerMessage
}
