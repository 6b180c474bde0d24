// Package types has the names that the test data uses.
package types

type Message struct{ Body, MessageId, ReceiptHandle *string }
