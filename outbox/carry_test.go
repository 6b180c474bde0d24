package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/outbox"
)

// picky is a sink with a Carries.
type picky struct {
	*bed
	cannot func(m pawl.Message) error
}

func (p picky) Carries(m pawl.Message) error { return p.cannot(m) }

// A message that the sink cannot carry becomes a dead letter at the first attempt, with the reason,
// and is never sent. Its neighbours are published.
func TestRelay_WhatTheSinkCannotCarryIsDeadAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var events []outbox.Event
	for n := range 30 {
		events = append(events, event(fmt.Sprint(n), "good"), event(fmt.Sprint("bad ", n), "bad"))
	}
	b.append(events...)
	b.relay(func(c *outbox.Config) {
		c.Sink = picky{b, func(m pawl.Message) error {
			if string(m.Payload) == "bad" {
				return errors.New("only good ones")
			}
			return nil
		}}
	})
	b.untilDone()
	if got := b.accepted(); len(got) != 30 || slices.Contains(got, "bad") {
		t.Errorf("published %q", got)
	}
	b.wantCount("select count(*) from pawl_v1.outbox_pending where status = 'dead_letter' and attempt_count = 1 and last_error like '%only good ones%'", 30)
}

// hostile returns text that Append accepts and that HTTP and brokers have trouble with.
func hostile(r *rand.Rand) string {
	parts := []string{"a", "Z9", " ", "%", "%41", `"`, "ü", "日本", "\u0085", "\ufffd", "\ufffe", "😀", "/", ":", "\t", "-", "_", ".", "=", "AWS.", "\\", "<", "x y"}
	var b strings.Builder
	for range 1 + r.IntN(4) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// name is hostile without tabs, which Append accepts only in values.
func name(r *rand.Rand) string { return strings.ReplaceAll(hostile(r), "\t", "t") }

func octets(r *rand.Rand) []byte {
	all := make([]byte, r.IntN(40))
	for i := range all {
		all[i] = byte(r.IntN(256))
	}
	return all
}

// hostileEvents returns n events with random octets, names and headers.
func hostileEvents(r *rand.Rand, n int) []outbox.Event {
	events := make([]outbox.Event, n)
	for i := range events {
		e := outbox.Event{Type: name(r), Scope: name(r), Key: fmt.Sprint(i, name(r)), Payload: octets(r), Headers: map[string]string{}}
		if r.IntN(3) > 0 {
			e.AggregateType, e.AggregateID = name(r), fmt.Sprint(i, name(r))
		}
		if r.IntN(3) == 0 {
			e.ContentType, e.Source = name(r), name(r)
		}
		for range r.IntN(3) {
			e.Headers[[]string{name(r), "tenant", "Tenant", "ce-extra", "idempotency-key", "host", "x-" + name(r)}[r.IntN(7)]] = hostile(r)
		}
		events[i] = e
	}
	return events
}

// tolerated reports whether Append accepts the event's header names.
func tolerated(e outbox.Event) bool {
	for name := range e.Headers {
		if name == "" || strings.ContainsAny(name, "\t") {
			return false
		}
	}
	return true
}

// Events with random octets, names, ids and headers go through a real relay and over real HTTP.
// Each arrives as appended, after the decoding that CloudEvents prescribes, or is a dead letter at
// its first attempt. Func and Channel pass everything unchanged.
func TestSinks_ExactlyOrRefused(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	events := slices.DeleteFunc(hostileEvents(rand.New(rand.NewPCG(seed, 0)), 400), func(e outbox.Event) bool { return !tolerated(e) })
	for sinkName, over := range map[string]func(t *testing.T, got func(pawl.Message)) (sink pawl.Sink, everything bool){
		"func": func(_ *testing.T, got func(pawl.Message)) (pawl.Sink, bool) {
			return outbox.Func(func(_ context.Context, m pawl.Message) error { got(m); return nil }), true
		},
		"channel": func(t *testing.T, got func(pawl.Message)) (pawl.Sink, bool) {
			to := make(chan pawl.Message)
			go func() {
				for {
					select {
					case m := <-to:
						got(m)
					case <-t.Context().Done():
						return
					}
				}
			}()
			return outbox.Channel(to), true
		},
		"http": func(t *testing.T, got func(pawl.Message)) (pawl.Sink, bool) { return overHTTP(t, got), false },
	} {
		t.Run(sinkName, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.append(events...)
			var mu sync.Mutex
			arrived := map[string]pawl.Message{}
			sink, everything := over(t, func(m pawl.Message) {
				mu.Lock()
				defer mu.Unlock()
				arrived[m.Headers["ce-id"]] = m
			})
			b.relay(func(c *outbox.Config) { c.Sink = sink })
			b.untilDone()
			b.wantCount("select count(*) from pawl_v1.outbox_pending where attempt_count <> 1", 0)
			dead := b.count("select count(*) from pawl_v1.outbox_pending")
			mu.Lock()
			defer mu.Unlock()
			if len(arrived)+dead != len(events) || everything && dead > 0 || !everything && (dead == 0 || dead == len(events)) {
				t.Fatalf("%d arrived, %d are dead letters, of %d", len(arrived), dead, len(events))
			}
			for _, e := range events {
				if m, there := arrived[pawl.Key(e.Scope, e.Key, e.Type)]; there {
					wantExactly(t, e, m)
				}
			}
			t.Logf("%d arrived, %d were refused", len(arrived), dead)
		})
	}
}

// wantExactly requires that m equals the appended event.
func wantExactly(t *testing.T, e outbox.Event, m pawl.Message) {
	t.Helper()
	want := maps.Clone(e.Headers)
	want["ce-type"], want["pawl-event-id"] = e.Type, pawl.Key(e.Scope, e.Key, e.Type)
	if e.AggregateID != "" {
		want["ce-subject"] = e.AggregateType + "/" + e.AggregateID
	}
	if e.Source != "" {
		want["ce-source"], want["content-type"] = e.Source, e.ContentType
	}
	for name, value := range want {
		if m.Headers[name] != value {
			t.Errorf("header %q is %q, want %q", name, m.Headers[name], value)
		}
	}
	if string(m.Payload) != string(e.Payload) {
		t.Errorf("the payload is %q, want %q", m.Payload, e.Payload)
	}
}

// overHTTP is the sink of the guide, with a server that follows the HTTP binding of CloudEvents.
func overHTTP(t *testing.T, got func(pawl.Message)) pawl.Sink {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		m := pawl.Message{Payload: body, Headers: asAppended(r.Header)}
		if m.Headers["idempotency-key"] != m.Headers["pawl-event-id"] {
			t.Errorf("the key is %q, the id %q", m.Headers["idempotency-key"], m.Headers["pawl-event-id"])
		}
		got(m)
	}))
	t.Cleanup(server.Close)
	return outbox.Func(func(ctx context.Context, m pawl.Message) error {
		request, err := outbox.NewRequest(ctx, server.URL, m)
		if err != nil {
			return err
		}
		for name := range m.Headers { // asAppended restores the names from this header
			request.Header.Add("Test-Name", url.QueryEscape(name))
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
}

// asAppended restores the header names as they were appended.
func asAppended(h http.Header) map[string]string {
	all := map[string]string{}
	for name, values := range h {
		all[strings.ToLower(name)] = strings.Join(values, "|")
	}
	for _, escaped := range h["Test-Name"] {
		name, _ := url.QueryUnescape(escaped)
		value := h.Get(name)
		if strings.HasPrefix(strings.ToLower(name), "ce-") {
			value, _ = url.PathUnescape(value)
		}
		all[name] = value
	}
	return all
}
