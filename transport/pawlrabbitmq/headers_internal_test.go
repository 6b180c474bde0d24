package pawlrabbitmq

import (
	"math"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Each AMQP type has one format, as a header and inside a table, in every time zone.
func TestAttributeOf_EachKind(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", -5*60*60)
	for _, c := range []struct {
		value      any
		text, json string // json: within a table; "" if it equals text
	}{
		{nil, "", "null"},
		{true, "true", ""},
		{uint8(7), "7", ""},
		{int8(-7), "-7", ""},
		{int16(-7), "-7", ""},
		{uint16(7), "7", ""},
		{int32(-7), "-7", ""},
		{uint32(7), "7", ""},
		{int64(math.MinInt64), "-9223372036854775808", ""},
		{float32(0.1), "0.1", ""},
		{1e300, "1e+300", ""},
		{math.NaN(), "NaN", `"NaN"`},
		{math.Inf(1), "+Inf", `"+Inf"`},
		{amqp.Decimal{Scale: 3, Value: 1}, "0.001", ""},
		{amqp.Decimal{Value: math.MaxInt32}, "2147483647", ""},
		{time.Date(2026, 1, 1, 0, 0, 0, 0, zone), "2026-01-01T05:00:00Z", `"2026-01-01T05:00:00Z"`},
		{time.Date(9999, 12, 31, 20, 0, 0, 0, zone), "253402304400", ""},
		{time.Unix(math.MaxInt64, 0), "9223372036854775807", ""},
		{time.Unix(-1<<60, 0), "-1152921504606846976", ""},
		{"w\u00f6rld <&>", "w\u00f6rld <&>", "\"w\u00f6rld \\u003c\\u0026\\u003e\""},
		{amqp.Table{}, "{}", ""},
		{[]any{}, "[]", ""},
		{[]any{"\x00"}, `["AA=="]`, ""},
	} {
		if c.json == "" {
			c.json = c.text
		}
		if text, octets := attributeOf(c.value); text != c.text || octets != nil {
			t.Errorf("%T %v is written %q, want %q", c.value, c.value, text, c.text)
		}
		if text, _ := attributeOf(amqp.Table{"in": c.value}); text != `{"in":`+c.json+"}" {
			t.Errorf("%T %v in a table is written %s, want %s", c.value, c.value, text, c.json)
		}
	}
}
