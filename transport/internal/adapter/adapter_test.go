package adapter

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
)

type message struct{ header, body string }

type keyFrom interface{ KeyOf(m message) string }

type keyFunc func(m message) string

func (f keyFunc) KeyOf(m message) string { return f(m) }

func named(name string) keyFrom {
	return Named[message]{By: "KeyHeader", Name: name, Of: func(m message, _ string) string { return m.header }}
}

func json(pointer string) keyFrom {
	return JSON[message]{Pointer: pointer, Body: func(m message) []byte { return []byte(m.body) }}
}

// KeyFirst uses the first key that is present.
func TestFirst(t *testing.T) {
	t.Parallel()
	first := First[message, keyFrom]{named("Key"), json("/id")}
	for m, want := range map[message]string{
		{"h", `{"id": "b"}`}: "h",
		{"", `{"id": "b"}`}:  "b",
		{"", `{"id": 1.0}`}:  "1.0",
		{"", `{}`}:           "",
		{"", `no JSON`}:      "",
	} {
		if got := first.KeyOf(m); got != want {
			t.Errorf("%+v: %q, want %q", m, got, want)
		}
	}
}

// A KeyFrom that cannot find a key is refused by name, inside KeyFirst too.
func TestCheckKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from any
		want string
	}{
		{keyFunc(nil), "KeyFunc is nil"},
		{named(""), "KeyHeader needs a name"},
		{json("id"), "KeyJSON: "},
		{First[message, keyFrom]{}, "KeyFirst needs at least one"},
		{First[message, keyFrom]{nil}, "KeyFirst was given nil"},
		{First[message, keyFrom]{named("Key"), keyFunc(nil)}, "KeyFunc is nil"},
		{First[message, keyFrom]{First[message, keyFrom]{named("")}}, "KeyHeader needs a name"},
	} {
		if err := CheckKey(c.from); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: %v, want %q", c.from, err, c.want)
		}
	}
	for _, from := range []any{keyFunc(func(message) string { return "" }), named("Key"), json("/id"), First[message, keyFrom]{named("Key")}} {
		if err := CheckKey(from); err != nil {
			t.Errorf("%T: %v", from, err)
		}
	}
}

// Wrap adds the operation and the next step, and keeps the client's error. It does not diagnose
// Pawl's own errors or a cancelled context.
func TestWrap(t *testing.T) {
	t.Parallel()
	client := errors.New("five\nlines")
	diagnose := func(error) (short, hint string) { return "one line", "do this" }
	err := Wrap("op", client, diagnose)
	var ours *pawl.Error
	if !errors.As(err, &ours) || ours.Op != "op" || ours.Hint != "do this" || ours.Err.Error() != "one line" || !errors.Is(err, client) {
		t.Errorf("%#v", err)
	}
	if again := Wrap("other", err, diagnose); again != err {
		t.Errorf("wrapped twice: %v", again)
	}
	if err := Wrap("op", context.Canceled, diagnose); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "one line") {
		t.Errorf("%v", err)
	}
	if err := Wrap("op", nil, diagnose); err != nil {
		t.Errorf("nil became %v", err)
	}
}

// Binary attributes round-trip. A text that only looks like a binary attribute is unchanged.
func TestBinary(t *testing.T) {
	t.Parallel()
	all := map[string]string{}
	SetBinary(all, "photo", []byte{0, 255})
	for name, value := range all {
		if plain, octets, is := Binary(name, value); !is || plain != "photo" || string(octets) != "\x00\xff" {
			t.Errorf("%s=%s is %q, %v, %v", name, value, plain, octets, is)
		}
	}
	if _, _, is := Binary("photo"+BinarySuffix, "no base64!"); is {
		t.Error("what is no base64 is binary")
	}
	if _, _, is := Binary("photo", "AP8="); is {
		t.Error("an attribute without the suffix is binary")
	}
}

// After errors that need an operator, pauses double up to a minute, until a request succeeds. Idle
// requests cause short pauses.
func TestPacer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		pause := func() time.Duration {
			start := time.Now()
			p.Await(t.Context())
			return time.Since(start)
		}
		needs := func(error) bool { return true }
		for _, most := range []time.Duration{5, 10, 20, 40, 60, 60} {
			p.Polled(errors.New("gone"), needs, false)
			if got := pause(); got < most*time.Second/2 || got > most*time.Second {
				t.Errorf("the pause is %v, want half of %ds to %ds", got, most, most)
			}
		}
		p.Polled(errors.New("passes"), func(error) bool { return false }, false)
		if got := pause(); got != 0 {
			t.Errorf("after an error that passes the pause is %v", got)
		}
		p.Polled(nil, needs, true)
		if got := pause(); got < 25*time.Millisecond || got > 50*time.Millisecond {
			t.Errorf("after an idle request the pause is %v", got)
		}
		p.Polled(nil, needs, false)
		if got := pause(); got != 0 {
			t.Errorf("after a request with messages the pause is %v", got)
		}
		p.Polled(errors.New("gone"), needs, false)
		if got := pause(); got > 5*time.Second {
			t.Errorf("after a success the pauses begin again with %v", got)
		}
	})
}

// An answer holds for five minutes. After a failed Ask, it holds for one more minute.
func TestHorizon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, answer, failure, told := 0, time.Hour, error(nil), 0
		h := Horizon{Timeout: time.Second, Failed: func(error) { told++ },
			Ask: func(context.Context) (time.Duration, error) { asked++; return answer, failure }}
		if err := h.Learn(t.Context()); err != nil || h.Get() != time.Hour || asked != 1 {
			t.Fatalf("%v, %d questions", err, asked)
		}
		answer = 2 * time.Hour
		time.Sleep(5*time.Minute - time.Second)
		if got := h.Get(); got != time.Hour || asked != 1 {
			t.Errorf("within five minutes: %v, %d questions", got, asked)
		}
		time.Sleep(time.Second)
		if got := h.Get(); got != 2*time.Hour || asked != 2 {
			t.Errorf("after five minutes: %v, %d questions", got, asked)
		}
		failure = errors.New("not now")
		time.Sleep(5 * time.Minute)
		if got := h.Get(); got != 2*time.Hour || asked != 3 || told != 1 {
			t.Errorf("after an error: %v, %d questions, told %d times", got, asked, told)
		}
		time.Sleep(time.Minute - time.Second)
		if h.Get(); asked != 3 {
			t.Error("asked again within a minute of an error")
		}
		time.Sleep(time.Second)
		if h.Get(); asked != 4 {
			t.Error("not asked again a minute after an error")
		}
		if err := h.Learn(t.Context()); !errors.Is(err, failure) {
			t.Errorf("Learn returns %v", err)
		}
	})
}
