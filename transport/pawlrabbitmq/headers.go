package pawlrabbitmq

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Attributes for the properties of a message. An empty property has no attribute. A header with one
// of these names does not reach the handler.
const (
	ExchangeAttribute      = "rabbitmq.exchange"
	RoutingKeyAttribute    = "rabbitmq.routing-key"
	TypeAttribute          = "rabbitmq.type"
	CorrelationIDAttribute = "rabbitmq.correlation-id"
	ReplyToAttribute       = "rabbitmq.reply-to"
	AppIDAttribute         = "rabbitmq.app-id"
	EncodingAttribute      = "rabbitmq.content-encoding"
	ContentTypeAttribute   = "content-type" // unless a header has this name
)

// BinarySuffix marks headers in Delivery.Attributes that are not text: octets, invalid UTF-8, or
// text with a NUL. A header "photo" then arrives as "photo;base64", in standard base64.
const BinarySuffix = adapter.BinarySuffix

// attributesOf returns the headers of a message as text, and its properties. A time is RFC 3339 in
// UTC, a decimal keeps its digits, and a table or an array is JSON of the same.
func attributesOf(d *amqp.Delivery) map[string]string {
	all := make(map[string]string, len(d.Headers)+4)
	for name, value := range d.Headers {
		name = strings.ToValidUTF8(name, "\uFFFD")
		text, octets := attributeOf(value)
		if octets == nil && adapter.IsText(text) {
			all[name] = text
			continue
		}
		if octets == nil {
			octets = []byte(text)
		}
		adapter.SetBinary(all, name, octets)
	}
	if _, own := all[ContentTypeAttribute]; !own && d.ContentType != "" {
		all[ContentTypeAttribute] = strings.ToValidUTF8(d.ContentType, "\uFFFD")
	}
	for name, value := range propertiesOf(d) {
		delete(all, name)
		if *value != "" {
			all[name] = cleanText(*value)
		}
	}
	return all
}

// propertiesOf returns the properties that are attributes under names of their own.
func propertiesOf(d *amqp.Delivery) map[string]*string {
	return map[string]*string{ExchangeAttribute: &d.Exchange, RoutingKeyAttribute: &d.RoutingKey, TypeAttribute: &d.Type,
		CorrelationIDAttribute: &d.CorrelationId, ReplyToAttribute: &d.ReplyTo, AppIDAttribute: &d.AppId, EncodingAttribute: &d.ContentEncoding}
}

// cleanText replaces invalid UTF-8 and NUL in a property, because properties have no ;base64 form.
func cleanText(value string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(value, "\uFFFD"), "\x00", "\uFFFD")
}

func attributeOf(value any) (text string, octets []byte) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case []byte:
		return "", v
	case amqp.Table, []any:
		doc, err := json.Marshal(jsonOf(v))
		if err != nil { // a type that amqp091-go does not read today
			return fmt.Sprint(v), nil
		}
		return string(doc), nil
	default:
		text, _ := scalar(v)
		return text, nil
	}
}

// scalar formats a simple value, and reports whether the text is a JSON number. A time outside the
// years 0 to 9999, which RFC 3339 cannot write, is its seconds since 1970.
func scalar(value any) (text string, number bool) {
	switch v := value.(type) {
	case string:
		return v, false
	case time.Time:
		if year := v.UTC().Year(); year < 0 || year > 9999 {
			return strconv.FormatInt(v.Unix(), 10), true
		}
		return v.UTC().Format(time.RFC3339), false
	case float32:
		return float(float64(v), 32)
	case float64:
		return float(v, 64)
	case amqp.Decimal:
		return decimal(v), true
	case bool:
		return strconv.FormatBool(v), false
	default: // whole numbers
		return fmt.Sprint(v), true
	}
}

func float(v float64, bits int) (text string, number bool) {
	return strconv.FormatFloat(v, 'g', -1, bits), !math.IsNaN(v) && !math.IsInf(v, 0)
}

// jsonOf converts a value for package json, with each part formatted as a header. Octets in a table
// add [BinarySuffix] to their name. In an array there is no name.
func jsonOf(value any) any {
	switch v := value.(type) {
	case nil, bool:
		return v
	case amqp.Table:
		all := make(map[string]any, len(v))
		for name, part := range v {
			name = strings.ToValidUTF8(name, "\uFFFD")
			if octets, is := octetsOf(part); is {
				name, part = name+BinarySuffix, octets
			}
			all[name] = jsonOf(part)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i, part := range v {
			all[i] = jsonOf(part)
		}
		return all
	}
	if octets, is := octetsOf(value); is {
		return octets // package json writes base64
	}
	text, number := scalar(value)
	if number {
		return json.Number(text)
	}
	return text
}

func octetsOf(value any) (octets []byte, is bool) {
	switch v := value.(type) {
	case []byte:
		return v, true
	case string:
		return []byte(v), !adapter.IsText(v)
	}
	return nil, false
}

func decimal(d amqp.Decimal) string {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d.Scale)), nil)
	return new(big.Rat).SetFrac(big.NewInt(int64(d.Value)), scale).FloatString(int(d.Scale))
}

// textOf returns a header that may be a key, which is text or a whole number, else "".
func textOf(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case int, int8, int16, int32, int64, uint8, uint16, uint32:
		return fmt.Sprint(v)
	default:
		return ""
	}
}

func numberOf(value any) int {
	n, err := strconv.Atoi(textOf(value))
	if err != nil {
		return 0
	}
	return n
}
