package pawlnats_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	msg := func(body string, headers ...string) *nats.Msg {
		m := nats.NewMsg("a")
		m.Data = []byte(body)
		for i := 0; i < len(headers); i += 2 {
			m.Header[headers[i]] = append(m.Header[headers[i]], headers[i+1])
		}
		return m
	}
	long := strings.Repeat("s", 250)
	for name, c := range map[string]struct {
		from pawlnats.KeyFrom
		m    *nats.Msg
		want string
	}{
		"idempotency key first": {pawlnats.DefaultKey(), msg("", "Idempotency-Key", "a", "Nats-Msg-Id", "b", "ce-id", "c", "ce-source", "d"), "a"},
		"then the message id":   {pawlnats.DefaultKey(), msg("", "Nats-Msg-Id", "b", "ce-id", "c", "ce-source", "d"), "b"},
		"then the event":        {pawlnats.DefaultKey(), msg("", "ce-id", "c", "ce-source", "d"), pawl.Key("d", "c")},
		"an id alone":           {pawlnats.DefaultKey(), msg("", "ce-id", "c"), ""},
		"a long event":          {pawlnats.KeyCloudEvent(), msg("", "ce-id", "c", "ce-source", long), pawl.Key(long, "c")},
		"the last value":        {pawlnats.KeyHeader("k"), msg("", "k", "a", "k", "b"), "b"},
		"another case":          {pawlnats.KeyHeader("k"), msg("", "K", "a"), ""},
		"JSON":                  {pawlnats.KeyJSON("/order/id"), msg(`{"order":{"id":"o-1"}}`), "o-1"},
		"a number":              {pawlnats.KeyJSON("/id"), msg(`{"id":10}`), "10"},
		"no JSON":               {pawlnats.KeyJSON("/id"), msg(`id`), ""},
		"first of several":      {pawlnats.KeyFirst(pawlnats.KeyHeader("k"), pawlnats.KeyJSON("/id")), msg(`{"id":"x"}`), "x"},
		"a function":            {pawlnats.KeyFunc(func(m *nats.Msg) string { return m.Subject }), msg(""), "a"},
		"not from JetStream":    {pawlnats.KeyPosition(), msg(""), ""},
	} {
		if got := c.from.KeyOf(c.m); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A position is the same at each delivery and differs for each publication, even in a recreated
// stream.
func TestKeyPosition(t *testing.T) {
	t.Parallel()
	o := options{config: pawlnats.Config{Key: pawlnats.KeyPosition()}}
	f := setup(t, o)
	seen := map[string]bool{}
	for range 2 {
		f.send("a", "a")
		first := f.get(2)
		f.must(f.source.Release(t.Context(), 0, first...))
		again := f.get(2)
		for i := range first {
			if first[i].Key != again[i].Key || first[i].Key != first[i].MessageID || seen[first[i].Key] {
				t.Errorf("position %q, then %q", first[i].Key, again[i].Key)
			}
			seen[first[i].Key] = true
		}
		f.ack(again...)
		f.must(f.js.DeleteStream(t.Context(), f.stream))
		f.create(o)
	}
}

func TestOrderingKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		got, want string
	}{
		{pawlnats.BySubject("orders.17.paid"), "orders.17.paid"},
		{pawlnats.BySubjectToken(2)("orders.17.paid"), "17"},
		{pawlnats.BySubjectToken(4)("orders.17.paid"), ""},
		{pawlnats.BySubjectToken(0)("orders.17.paid"), ""},
		{pawlnats.SubjectByType("shop")(pawl.Message{AggregateType: "line item", Type: "a.b>"}), "shop.line_item.a_b_"},
		{pawlnats.SubjectByType("shop")(pawl.Message{Type: "Tick"}), "shop.none.Tick"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
