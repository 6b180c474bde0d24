package sqs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// DefaultKeyAttribute is the message attribute that carries the key unless something else is said.
const DefaultKeyAttribute = "Idempotency-Key"

// KeyFrom finds the idempotency key of a message: the sender's name for the intent, the same for every resend.
// It answers "" for a message that carries none.
type KeyFrom interface {
	KeyOf(m types.Message) string
}

// KeyFunc makes a [KeyFrom] of a function, for keys that are somewhere else.
type KeyFunc func(m types.Message) string

// KeyOf calls f.
func (f KeyFunc) KeyOf(m types.Message) string { return f(m) }

// KeyAttribute takes the key from the message attribute of that name, of type String or Number. A sender gives every
// resend the same one. That a redrive from a dead-letter queue keeps attributes is assumed: AWS documents the new id
// and send time, and nothing about attributes being dropped; it was not tried.
func KeyAttribute(name string) KeyFrom { return attributeKey(name) }

type attributeKey string

func (k attributeKey) KeyOf(m types.Message) string {
	return aws.ToString(m.MessageAttributes[string(k)].StringValue)
}

func (k attributeKey) check() error {
	if k == "" {
		return errors.New("KeyAttribute needs a name")
	}
	return nil
}

// KeyMessageID takes the id that SQS gave the message. It protects against redelivery, not against resend or
// redrive: a producer that retries its send and a redrive from the dead-letter queue both make a new id, and the
// effect happens again. Use it only where no key can be had from the sender.
func KeyMessageID() KeyFrom {
	return KeyFunc(func(m types.Message) string { return aws.ToString(m.MessageId) })
}

// KeyJSON takes the key from the JSON document in the body, at an RFC 6901 pointer such as "/order/id". A string is
// the key as it is, a number as it is written (1 and 1.0 are two keys). Anything else, or a body that is not one JSON
// document, has no key.
func KeyJSON(pointer string) KeyFrom { return jsonKey(pointer) }

type jsonKey string

func (k jsonKey) check() error {
	if k == "" || k[0] != '/' {
		return fmt.Errorf("KeyJSON pointer %q must start with a slash (RFC 6901)", string(k))
	}
	for rest := string(k); ; {
		_, after, found := strings.Cut(rest, "~")
		if !found {
			return nil
		}
		if after == "" || after[0] != '0' && after[0] != '1' {
			return fmt.Errorf("KeyJSON pointer %q has a ~ that is neither ~0 nor ~1 (RFC 6901)", string(k))
		}
		rest = after
	}
}

func (k jsonKey) KeyOf(m types.Message) string {
	decoder := json.NewDecoder(strings.NewReader(aws.ToString(m.Body)))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return ""
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return ""
	}
	for token := range strings.SplitSeq(string(k[1:]), "/") {
		value = step(value, unescape.Replace(token))
	}
	switch found := value.(type) {
	case string:
		return found
	case json.Number:
		return found.String()
	}
	return ""
}

// unescape works for "~01" too, which is "~1": a replacer does not look at its output again.
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// step goes down one token; nil if there is no such member or element.
func step(value any, token string) any {
	switch parent := value.(type) {
	case map[string]any:
		return parent[token]
	case []any:
		i, err := strconv.Atoi(token)
		if err != nil || i < 0 || i >= len(parent) || strconv.Itoa(i) != token {
			return nil
		}
		return parent[i]
	}
	return nil
}
