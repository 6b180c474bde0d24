package consumer_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
)

// mostKept is the most octets that the database accepts of a payload, and of the texts beside it.
const mostKept = 4 << 20

const (
	bigPayload = "and at most 4194304 can be stored: the dead letter does not have it"
	bigTexts   = "and at most 4194304 can be stored: the dead letter has no attributes"
)

// fineDeliveries are unusual and can be handled. Each has a key.
func fineDeliveries() []pawl.Delivery {
	ds := []pawl.Delivery{
		{Key: "the largest payload", Payload: make([]byte, mostKept)},
		{Key: "any octets in the payload", Payload: []byte("\x00\xff\xfe")},
		{Key: "any octets in the attributes", Attributes: map[string]string{"a\x00": "\x00\xff", "\xff": "é", "": ""}},
		{Key: "the largest attribute", Attributes: map[string]string{"a": strings.Repeat("a", mostKept-100)}},
		{Key: "a long ordering key", OrderingKey: strings.Repeat("o", 5000)},
		{Key: "any octets in the message id", MessageID: "m\x00\xff"},
		{Key: "any octets in the log", Log: "l\x00\xff"},
		{Key: "any octets in the verifier", VerifiedBy: "v\x00\xff"},
		{Key: "a long verifier", VerifiedBy: strings.Repeat("v", 256)},
	}
	return ds
}

// deadDeliveries cannot be handled or cannot be stored unchanged, each with a part of the reason.
func deadDeliveries() (ds []pawl.Delivery, reasons []string) {
	huge, many := strings.Repeat("é", mostKept/2+1), map[string]string{}
	for n := range 5000 {
		many[fmt.Sprint("name ", n)] = strings.Repeat("x", 1000)
	}
	for _, c := range []struct {
		d   pawl.Delivery
		why string
	}{
		{pawl.Delivery{Key: "payload", Payload: make([]byte, mostKept+1), Log: "orders/3", Offset: 17, Attributes: map[string]string{"a": "b"}}, bigPayload},
		{pawl.Delivery{Key: "attribute", Attributes: map[string]string{"a": huge}}, bigTexts},
		{pawl.Delivery{Key: "attribute's name", Attributes: map[string]string{huge: "a"}}, bigTexts},
		{pawl.Delivery{Key: "attributes", Attributes: many}, bigTexts},
		{pawl.Delivery{Key: huge}, bigTexts},
		{pawl.Delivery{Key: "semantic key", SemanticKey: huge}, bigTexts},
		{pawl.Delivery{Key: "ordering key", OrderingKey: huge}, bigTexts},
		{pawl.Delivery{Key: "message id", MessageID: huge}, bigTexts},
		{pawl.Delivery{Key: "log", Log: huge}, bigTexts},
		{pawl.Delivery{Key: "verifier", VerifiedBy: huge}, bigTexts},
		{pawl.Delivery{KeyFault: huge}, bigTexts},
		{pawl.Delivery{SemanticKey: huge, OrderingKey: huge, Payload: make([]byte, 2*mostKept), Attributes: map[string]string{huge: huge}}, bigPayload},
		{pawl.Delivery{Key: strings.Repeat("k", 256)}, "key has 256 octets"},
		{pawl.Delivery{Key: "k\x00"}, "key contains the control character U+0000"},
		{pawl.Delivery{Key: "k\xff"}, "key is not valid UTF-8"},
		{pawl.Delivery{Key: "semantic", SemanticKey: "s\x00"}, "key contains the control character U+0000"},
		{pawl.Delivery{Key: "order", OrderingKey: "o\x00"}, "is not text"},
	} {
		ds, reasons = append(ds, c.d), append(reasons, c.why)
	}
	return ds, reasons
}

// consumeStrange sends each delivery twice to a handler that records the keys.
func (b *bed) consumeStrange(ds ...pawl.Delivery) {
	b.Helper()
	for n := range ds {
		if ds[n].MessageID == "" {
			ds[n].MessageID = fmt.Sprint("message ", n)
		}
	}
	b.source.Send(ds...)
	b.source.Send(ds...)
	b.consume()
}

func (b *bed) wantStrange(fine []pawl.Delivery, reasons []string) {
	b.Helper()
	want := map[string]int{}
	for _, why := range reasons {
		want[why]++
	}
	for why, n := range want {
		if got := b.count("select count(*) from pawl_v1.dead_letters where last_error like '%" + why + "%'"); got != n {
			b.Errorf("%d dead letters say %q, want %d", got, why, n)
		}
	}
	if got := b.count("select count(*) from pawl_v1.dead_letters"); got != len(reasons) {
		b.Errorf("%d dead letters, want %d", got, len(reasons))
	}
	rows, _ := b.asks.Query(b.Context(), "select key from effect")
	effects, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.Fatal(err)
	}
	wanted := make([]string, len(fine))
	for n, d := range fine {
		wanted[n] = d.Key
	}
	slices.Sort(effects)
	slices.Sort(wanted)
	if !slices.Equal(effects, wanted) {
		b.Errorf("took effect: %.100q, want %q", effects, wanted)
	}
}

// Every delivery is settled: it takes effect or becomes one dead letter with the reason. It holds
// up no other delivery of its batch. If it was not kept whole, a retry does not reach the handler.
func TestSize_EveryDeliveryIsSettled(t *testing.T) {
	t.Parallel()
	// the other forms identify and store alike
	for _, name := range []string{"inline", "many", "leased"} {
		set := allForms[name]
		for mode, keep := range map[string]consumer.KeepMode{"failed": consumer.KeepFailed, "all": consumer.KeepAll} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				set(&b.form)
				b.config.Keep.Mode, b.form.MaxPayload = keep, mostKept
				b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
					_, err := tx.Exec(ctx, "insert into effect values ($1, '')", d.Key)
					return err
				}
				fine := fineDeliveries()
				dead, reasons := deadDeliveries()
				b.consumeStrange(append(slices.Clone(fine), dead...)...)
				b.wantStrange(fine, reasons)
				b.retryAll(true)
				b.consume()
				whole := slices.DeleteFunc(slices.Clone(reasons), func(why string) bool { return why == bigPayload || why == bigTexts })
				again := slices.Concat(whole, slices.Repeat([]string{"its payload was too large to be kept"}, 2), slices.Repeat([]string{"the attributes it came with were not kept"}, len(reasons)-len(whole)-2))
				b.wantStrange(fine, again)
			})
		}
	}
}

// A dead letter that was not kept whole says what is missing, and where to find the message.
func TestSize_TheDeadLetterSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dead, _ := deadDeliveries()
	b.consumeStrange(dead[0], dead[1])
	var payload []byte
	var headers map[string]any
	var why string
	if err := b.asks.QueryRow(t.Context(), "select payload, headers, last_errors -> -1 ->> 'error' from pawl.job where headers ->> 'pawl-key' = 'payload'").Scan(&payload, &headers, &why); err != nil {
		t.Fatal(err)
	}
	print := fmt.Sprintf("%x", sha256.Sum256(make([]byte, mostKept+1)))
	want := map[string]any{"pawl-payload-octets": float64(mostKept + 1), "pawl-payload-sha256": print, "pawl-partial": true,
		"pawl-log": "orders/3", "pawl-offset": "17", "pawl-message-id": "message 0", "pawl-key": "payload"}
	for name, value := range want {
		if headers[name] != value {
			t.Errorf("header %s is %v, want %v", name, headers[name], value)
		}
	}
	if attributes, _ := headers["attributes"].(map[string]any); len(payload) != 0 || !maps.Equal(attributes, map[string]any{"a": "b"}) {
		t.Errorf("it has %d octets, and the attributes %v", len(payload), attributes)
	}
	for _, part := range []string{print, "4194305", "log orders/3 at offset 17"} {
		if !strings.Contains(why, part) {
			t.Errorf("the reason is %q, and does not say %q", why, part)
		}
	}
	if n := b.count("select count(*) from pawl.delivery"); n != 0 {
		t.Errorf("%d deliveries are kept as they came", n)
	}
	if n := b.count("select count(*) from pawl.job where headers ->> 'pawl-key' = 'attribute' and headers -> 'pawl-text-octets' = '4194325' and headers -> 'attributes' = '{}'"); n != 1 {
		t.Errorf("%d dead letters say how large their attributes were", n)
	}
}

func TestSize_WhatTheDatabaseRefusesIsADeadLetter(t *testing.T) {
	t.Parallel()
	resource := func(name string) func(*bed) {
		return func(b *bed) { b.form.Exclusive = func(pawl.Delivery) string { return name } }
	}
	for name, c := range map[string]struct {
		set func(*bed)
		why string
	}{
		"a long resource":     {resource(strings.Repeat("r", 256)), "key must have 1 to 255 octets"},
		"a resource with NUL": {resource("r\x00"), "invalid byte sequence"},
		"a gate's resource": {func(b *bed) {
			b.form.SequenceGate = &consumer.SequenceGate{Mode: consumer.GateLatest, Of: func(pawl.Delivery) (string, int64, error) { return strings.Repeat("r", 256), 1, nil }}
		}, "scope has 256 octets"},
	} {
		for form, mode := range map[string]consumer.Mode{"inline": consumer.RetryFromDatabase, "source": consumer.RetryFromSource} {
			t.Run(name+"/"+form, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.form.Mode = mode
				c.set(b)
				b.consumeStrange(order(1))
				b.wantStrange(nil, []string{c.why})
			})
		}
	}
}

// A trigger is not called for a delivery that could not be stored, nor for its dead letter.
func TestSize_Trigger(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.form.handle, b.form.trigger = nil, func(ctx context.Context, d pawl.Delivery) error {
		_, err := b.pool.Exec(ctx, "insert into effect select $1, '' where not exists (select from effect where key = $1)", strings.ToValidUTF8(strings.ReplaceAll(d.Key, "\x00", ""), ""))
		return err
	}
	var dead []pawl.Delivery
	var reasons []string
	all, whys := deadDeliveries()
	for n, why := range whys {
		if why == bigPayload || why == bigTexts {
			dead, reasons = append(dead, all[n]), append(reasons, why)
		}
	}
	fine := fineDeliveries()
	fine = slices.DeleteFunc(fine, func(d pawl.Delivery) bool { return d.Key == "a long ordering key" })
	b.consumeStrange(append(slices.Clone(fine), dead...)...)
	b.wantStrange(fine, reasons)
	b.retryAll(true)
	b.consume()
	b.wantStrange(fine, slices.Concat(slices.Repeat([]string{"its payload was too large to be kept"}, 2), slices.Repeat([]string{"the attributes it came with were not kept"}, len(reasons)-2)))
}
