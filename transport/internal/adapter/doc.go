// Package adapter holds what the transports to brokers have in common: how a key is found in a
// message, how an error of a client is told, pauses between requests that cannot succeed, and names
// and forms of attributes. It knows no broker.
package adapter
