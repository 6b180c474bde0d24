package transporttest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	"github.com/pawl-go/pawl"
)

// message returns a message with its own ordering key, if the broker is Ordered.
func (b *bench) message(key string, body []byte) Message {
	m := Message{Key: key, Payload: body}
	if b.Features.Ordered {
		m.OrderingKey = "alone-" + key
	}
	return m
}

// wantBody receives one delivery, which must have exactly the octets sent.
func (b *bench) wantBody(sent Message) pawl.Delivery {
	b.Helper()
	d := b.one(b.source)
	if d.Key != sent.Key || !bytes.Equal(d.Payload, sent.Payload) {
		b.Errorf("received %q with %d octets, want %q with %d, equal: %t", d.Key, len(d.Payload), sent.Key, len(sent.Payload), bytes.Equal(d.Payload, sent.Payload))
	}
	b.ack(b.source, d)
	return d
}

// The largest body arrives complete.
func largeBody(b *bench) {
	body := make([]byte, b.MostBody)
	for i := range body {
		body[i] = 'a' + byte(rand.IntN(26))
	}
	m := b.message("large", body)
	b.must(b.queue.Send(b.Context(), m))
	b.wantBody(m)
}

// A body with every octet value arrives as it was sent.
func anyOctets(b *bench) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	m := b.message("all-octets", append(all, 0xff, 0x00))
	b.must(b.queue.Send(b.Context(), m))
	b.wantBody(m)
}

// An empty body arrives and does not block others.
func emptyBody(b *bench) {
	m := b.message("empty", []byte{})
	b.must(b.queue.Send(b.Context(), m))
	b.wantBody(m)
}

// A binary attribute arrives as base64 under its name and a suffix. A text attribute beside it
// stays text.
func binaryAttributes(b *bench) {
	octets := "\xff\x00\xfe"
	m := b.message("a", []byte("body"))
	m.Attributes = map[string]string{"photo": octets, "type": "w\u00f6rld"}
	b.must(b.queue.Send(b.Context(), m))
	d := b.wantBody(m)
	if want := base64.StdEncoding.EncodeToString([]byte(octets)); d.Attributes["photo;base64"] != want || d.Attributes["type"] != "w\u00f6rld" {
		b.Errorf("the attributes are %q, want photo;base64 %q", d.Attributes, want)
	}
	if raw, there := d.Attributes["photo"]; there {
		b.Errorf("photo arrived as %q beside", raw)
	}
}

// Binary ordering keys arrive as text, a different one for each key.
func binaryKeys(b *bench) {
	sent := []string{"\xff\x00", "\xff\x01", "\x00", "plain"}
	arrived := map[string]string{} // by the key sent
	for n, key := range append(sent, sent...) {
		m := Message{Key: fmt.Sprintf("key-%d", n), OrderingKey: key, Payload: []byte("body")}
		b.must(b.queue.Send(b.Context(), m))
		got := b.wantBody(m).OrderingKey
		if got == "" || strings.ContainsRune(got, 0) || !utf8.ValidString(got) {
			b.Errorf("ordering key %q arrived as %q", key, got)
		}
		if before, again := arrived[key]; again && before != got {
			b.Errorf("ordering key %q arrived as %q and as %q", key, before, got)
		}
		arrived[key] = got
	}
	names := map[string]bool{}
	for _, name := range arrived {
		names[name] = true
	}
	if len(names) != len(sent) {
		b.Errorf("%d ordering keys arrived as %q", len(sent), arrived)
	}
}
