package outbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
)

// An event exists if and only if the transaction that appended it commits.
func TestAppend_FollowsTheTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	for _, commit := range []bool{true, false, true} {
		tx := b.begin()
		for range 2 {
			_, err := outbox.Append(t.Context(), tx, event("17", map[bool]string{true: "kept", false: "lost"}[commit]))
			b.must(err)
		}
		if commit {
			b.must(tx.Commit(t.Context()))
		} else {
			b.must(tx.Rollback(t.Context()))
		}
	}
	b.untilDone()
	b.want("kept", "kept", "kept", "kept")
}

// The same scope, key and type append once, also after publishing. Other content is refused.
func TestAppend_OncePerScopeKeyAndType(t *testing.T) {
	t.Parallel()
	b := setup(t)
	keyed := func(scope, key, kind, payload string) outbox.Event {
		return outbox.Event{Type: kind, Scope: scope, Key: key, Payload: []byte(payload), AggregateType: "order", AggregateID: "17"}
	}
	first := b.append(keyed("s", "k", "T", "p"))[0]
	if first.Duplicate || first.EventID != "1:s1:k1:T" {
		t.Errorf("the first is %+v", first)
	}
	b.relay()
	b.untilDone()
	again := b.append(keyed("s", "k", "T", "p"))[0]
	if !again.Duplicate || again.EventID != first.EventID || again.JobID != first.JobID {
		t.Errorf("the second is %+v, the first %+v", again, first)
	}
	many := b.append(keyed("s", "k", "U", "p"), keyed("s2", "k", "T", "p"), keyed("s", "k", "T", "p"), keyed("s2", "k", "T", "p"))
	for i, duplicate := range []bool{false, false, true, true} {
		if many[i].Duplicate != duplicate {
			t.Errorf("event %d of the batch is %+v", i, many[i])
		}
	}
	other := keyed("s", "k", "T", "p")
	other.AggregateID = "18"
	for _, e := range []outbox.Event{keyed("s", "k", "T", "q"), other} {
		for _, batch := range [][]outbox.Event{{e}, {event("1", ""), e}} {
			if err := b.refusal(batch...); !errors.Is(err, pawl.ErrKeyReused) {
				t.Errorf("another event under the key: %v", err)
			}
		}
	}
	b.untilDone()
	b.want("p", "p", "p")
}

// Without a key each event is new and gets its own id.
func TestAppend_MakesAKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := map[string]bool{}
	for _, batch := range [][]outbox.Event{{event("1", "a")}, {event("1", "a")}, {event("1", "a"), event("1", "a")}} {
		for _, a := range b.append(batch...) {
			ids[a.EventID] = true
		}
	}
	if len(ids) != 4 || ids[""] {
		t.Errorf("the ids are %v", ids)
	}
	b.wantCount("select count(*) from pawl.job_key", 0)
}

// With database/sql, events are appended in the caller's transaction.
func TestAppend_DatabaseSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := stdlib.OpenDBFromPool(b.pool)
	for _, commit := range []bool{true, false} {
		tx, err := db.BeginTx(t.Context(), nil)
		b.must(err)
		_, err = outbox.Append(t.Context(), pawl.SQLTx(tx), event("1", "one"), event("1", "two"))
		b.must(err)
		_, err = outbox.Append(t.Context(), pawl.SQLTx(tx), event("1", "three"))
		b.must(err)
		if commit {
			b.must(tx.Commit())
		} else {
			b.must(tx.Rollback())
		}
	}
	b.relay()
	b.untilDone()
	b.wantInOrder("one", "two", "three")
}

// A message has the attributes of CloudEvents, the trace and the dedupe header, and no others.
func TestMessage_IsACloudEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	parent := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := pawl.WithTrace(t.Context(), pawl.Trace{Parent: parent, State: "a=b"})
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	tx := b.begin()
	_, err := outbox.Append(ctx, tx, outbox.Event{Type: "OrderPlaced", AggregateType: "order", AggregateID: "17", Scope: "orders", Key: "c-1",
		Value: map[string]int{"cents": 1250}, Source: "/shop", Time: at, Headers: map[string]string{"tenant": "t-9"}})
	b.must(err)
	_, err = outbox.Append(t.Context(), tx, outbox.Event{Type: "Bare"})
	b.must(err)
	b.must(tx.Commit(t.Context()))
	b.relay()
	b.untilAccepted(2)
	for _, m := range b.got {
		if m.Type == "Bare" {
			if m.Group != "" || m.Headers["ce-source"] != "/outbox/default" || m.Headers["ce-time"] == "" || m.Headers["ce-subject"] != "" || len(m.ID) != 36 {
				t.Errorf("the bare event is %+v", m)
			}
			continue
		}
		want := map[string]string{"ce-id": "6:orders3:c-111:OrderPlaced", "ce-source": "/shop", "ce-specversion": "1.0",
			"ce-type": "OrderPlaced", "ce-time": "2026-05-04T03:02:01Z", "ce-subject": "order/17", "content-type": "application/json",
			"traceparent": parent, "tracestate": "a=b", "pawl-event-id": "6:orders3:c-111:OrderPlaced", "tenant": "t-9"}
		for name, value := range want {
			if m.Headers[name] != value {
				t.Errorf("header %s is %q, want %q", name, m.Headers[name], value)
			}
		}
		if len(m.Headers) != len(want) || m.ID != want["ce-id"] || !m.Time.Equal(at) || m.Group != "5:order2:17" || m.Position == 0 ||
			string(m.Payload) != `{"cents":1250}` || m.Attempt != 1 {
			t.Errorf("the message is %+v", m)
		}
	}
}

// Invalid events are refused when they are appended, and nothing is stored.
func TestAppend_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		event outbox.Event
		want  pawl.Code
	}{
		"no type":            {outbox.Event{}, pawl.CodeScopeInvalid},
		"half an aggregate":  {outbox.Event{Type: "T", AggregateID: "1"}, pawl.CodeArgumentInvalid},
		"half a key":         {outbox.Event{Type: "T", Key: "1"}, pawl.CodeArgumentInvalid},
		"payload and value":  {outbox.Event{Type: "T", Payload: []byte("1"), Value: 1}, pawl.CodeArgumentInvalid},
		"no JSON":            {outbox.Event{Type: "T", Value: func() {}}, pawl.CodeArgumentInvalid},
		"policy of no lane":  {outbox.Event{Type: "T", LanePolicy: job.LanePark}, pawl.CodeArgumentInvalid},
		"unknown policy":     {outbox.Event{Type: "T", AggregateType: "a", AggregateID: "1", LanePolicy: "drop"}, pawl.CodeArgumentInvalid},
		"our header":         {outbox.Event{Type: "T", Headers: map[string]string{"Pawl-Event-Id": "x"}}, pawl.CodeArgumentInvalid},
		"CloudEvents' id":    {outbox.Event{Type: "T", Headers: map[string]string{"ce-id": "x"}}, pawl.CodeArgumentInvalid},
		"a long sink":        {outbox.Event{Type: "T", SinkName: strings.Repeat("s", 201)}, pawl.CodeScopeInvalid},
		"a long type":        {outbox.Event{Type: strings.Repeat("t", 256)}, pawl.CodeScopeInvalid},
		"too many attempts":  {outbox.Event{Type: "T", MaxAttempts: 1001}, pawl.CodeArgumentInvalid},
		"a long aggregate":   {outbox.Event{Type: "T", AggregateType: "a", AggregateID: strings.Repeat("t", 256)}, pawl.CodeScopeInvalid},
		"a payload over 4MB": {outbox.Event{Type: "T", Payload: make([]byte, 4<<20+1)}, pawl.CodeArgumentInvalid},
	} {
		for _, batch := range [][]outbox.Event{{c.event}, {{Type: "T"}, c.event}} {
			if err := b.refusal(batch...); pawl.CodeOf(err) != c.want {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
		}
	}
	mixed := []outbox.Event{event("1", ""), event("2", "")}
	mixed[1].LanePolicy = job.LanePark
	if err := b.refusal(mixed...); pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
		t.Errorf("two policies in a batch: %v", err)
	}
	b.wantCount("select count(*) from pawl.job", 0)
}

// Aggregates whose parts read the same when joined stay apart. Long names are hashed.
func TestAppend_AggregatesDoNotMeet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	long := strings.Repeat("x", 255)
	for _, a := range [][2]string{{"ab", "c"}, {"a", "bc"}, {long, long}, {long, long[1:]}} {
		b.append(outbox.Event{Type: "T", AggregateType: a[0], AggregateID: a[1]})
	}
	b.wantCount("select count(*) from pawl.lane", 4)
	var name string
	b.must(b.pool.QueryRow(t.Context(), "select name from pawl.lane where name like 'sha256:%' order by id limit 1").Scan(&name))
	if name != pawl.Key(long, long) {
		t.Errorf("the lane is %s, pawl.Key makes %s", name, pawl.Key(long, long))
	}
}

// Append refuses events that no sink could carry, from Go and from SQL. A line feed in a name would
// block the relay; octets that are not UTF-8 would be replaced on the way into the row.
func TestAppend_RefusesWhatNoSinkCarries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, bad := range []string{"a\nb", "a\r\nb", "\x01", "a\x7f", "a\x00b", "a\xffb"} {
		for name, e := range map[string]outbox.Event{
			"type":           {Type: bad},
			"aggregate type": {Type: "T", AggregateType: bad, AggregateID: "1"},
			"aggregate id":   {Type: "T", AggregateType: "a", AggregateID: bad},
			"scope":          {Type: "T", Scope: bad, Key: "k"},
			"key":            {Type: "T", Scope: "s", Key: bad},
			"sink":           {Type: "T", SinkName: bad},
			"source":         {Type: "T", Source: bad},
			"content type":   {Type: "T", ContentType: bad},
			"header name":    {Type: "T", Headers: map[string]string{bad: "v"}},
			"header value":   {Type: "T", Headers: map[string]string{"x": bad}},
		} {
			for _, batch := range [][]outbox.Event{{e}, {{Type: "T"}, e}} {
				if err := b.refusal(batch...); !pawl.IsFinal(err) && pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
					t.Errorf("%s %q, of %d: %v", name, bad, len(batch), err)
				}
			}
		}
	}
	b.append(outbox.Event{Type: "Größe geändert", AggregateType: "Auftrag", AggregateID: "ü 17", Scope: "s", Key: "日本", Headers: map[string]string{"x": "a\tb ✓"}})
	for _, call := range []string{
		`select pawl_v1.outbox_append('default', 'T', 'order', e'a\nb', '')`,
		`select pawl_v1.outbox_append('default', 'T', null, null, '', '{"headers": {"x": "a\nb"}}')`,
		`select pawl_v1.outbox_append_many('{default}', '{T}', '{order}', array[e'a\nb'], '{""}')`,
	} {
		if _, err := b.pool.Exec(t.Context(), call); pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
			t.Errorf("%s: %v", call, err)
		}
	}
	b.wantCount("select count(*) from pawl.job", 1)
}
