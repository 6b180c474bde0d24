package pawlrabbitmq

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Attributes of a delivery that hold properties of its message. Properties that are empty make none; a header of the same name does not reach
// the handler.
const (
	ExchangeAttribute      = "rabbitmq.exchange"
	RoutingKeyAttribute    = "rabbitmq.routing-key"
	TypeAttribute          = "rabbitmq.type"
	CorrelationIDAttribute = "rabbitmq.correlation-id"
	ReplyToAttribute       = "rabbitmq.reply-to"
	AppIDAttribute         = "rabbitmq.app-id"
	EncodingAttribute      = "rabbitmq.content-encoding"
	ContentTypeAttribute   = "content-type" // if there is no header of this name
)

// BinarySuffix marks headers that are no text in Delivery.Attributes: a header "photo" that holds octets, or a text that is no UTF-8 or holds a
// NUL, arrives as "photo;base64", in standard base64.
const BinarySuffix = adapter.BinarySuffix

// attributesOf are the headers of a message as text, and its properties. A table or an array becomes JSON.
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
	for name, value := range map[string]string{ExchangeAttribute: d.Exchange, RoutingKeyAttribute: d.RoutingKey, TypeAttribute: d.Type,
		CorrelationIDAttribute: d.CorrelationId, ReplyToAttribute: d.ReplyTo, AppIDAttribute: d.AppId, EncodingAttribute: d.ContentEncoding} {
		delete(all, name)
		if value != "" {
			all[name] = cleanText(value)
		}
	}
	return all
}

// cleanText makes a text of a property: they have no ;base64 form.
func cleanText(value string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(value, "\uFFFD"), "\x00", "\uFFFD")
}

// attributeOf writes the value of a header: as text, or as octets if it holds some.
func attributeOf(value any) (text string, octets []byte) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case []byte:
		return "", v
	case time.Time:
		return v.UTC().Format(time.RFC3339), nil
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32), nil
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case amqp.Decimal:
		return decimal(v), nil
	case amqp.Table, []any:
		doc, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v), nil
		}
		return string(doc), nil
	default: // whole numbers and booleans
		return fmt.Sprint(v), nil
	}
}

func decimal(d amqp.Decimal) string {
	digits := strconv.FormatInt(int64(d.Value), 10)
	if d.Scale == 0 {
		return digits
	}
	sign, digits, negative := "", digits, strings.HasPrefix(digits, "-")
	if negative {
		sign, digits = "-", digits[1:]
	}
	if missing := int(d.Scale) + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	at := len(digits) - int(d.Scale)
	return sign + digits[:at] + "." + digits[at:]
}

// textOf is a header that may be a key: a text or a whole number; "" for anything else.
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

// numberOf is a header that counts; 0 if it is absent or no number.
func numberOf(value any) int {
	n, err := strconv.Atoi(textOf(value))
	if err != nil {
		return 0
	}
	return n
}
