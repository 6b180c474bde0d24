package adapter

import (
	"maps"
	"testing"

	"github.com/pawl-go/pawl"
)

// Attributes get the prefix of the binding; other headers keep their names.
func TestRenameEvent(t *testing.T) {
	t.Parallel()
	got := RenameEvent(map[string]string{"ce-id": "1", "ce-source": "/shop", "content-type": "application/json", "traceparent": "00"}, EventKafka)
	want := map[string]string{"ce_id": "1", "ce_source": "/shop", "content-type": "application/json", "traceparent": "00"}
	if !maps.Equal(got, want) {
		t.Errorf("renamed to %v", got)
	}
}

// An id alone is no key, because two sources may both count from 1.
func TestEventKey_NeedsSourceAndID(t *testing.T) {
	t.Parallel()
	of := func(headers map[string]string) string {
		return EventKey(func(name string) string { return headers[name] }, EventHTTP)
	}
	if got := of(map[string]string{"ce-id": "1"}); got != "" {
		t.Errorf("the key of an id alone is %q", got)
	}
	if got := of(map[string]string{"ce-id": "1", "ce-source": "/shop"}); got != pawl.Key("/shop", "1") {
		t.Errorf("the key is %q", got)
	}
	if of(map[string]string{"ce-id": "1", "ce-source": "/a"}) == of(map[string]string{"ce-id": "1", "ce-source": "/b"}) {
		t.Error("two sources have one key")
	}
}
