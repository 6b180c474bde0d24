// Package adapter holds code that the transports to brokers share: it finds keys in messages, words
// client errors, pauses between requests that cannot succeed, and converts attributes. It depends
// on no broker.
package adapter
