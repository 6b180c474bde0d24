package observe

import (
	"strings"
	"sync"

	"github.com/pawl-go/pawl"
)

// EventOptions say how events become metrics. The zero value is fit for production.
type EventOptions struct {
	// Scope is the label scope of an event; "" leaves it empty. Default [Scope], which leaves out what callers of your service can
	// choose. Each value costs some 60 series for as long as the process lives.
	Scope func(pawl.Event) string
	// MaxScopes bounds how many values the label scope takes; from there on it is [OtherScope]. Default 200.
	MaxScopes int
}

// OtherScope is the label scope of events beyond EventOptions.MaxScopes.
const OtherScope = "other"

const defaultMaxScopes = 200

// named says, by the first word of an event's Op, whether its Scope is a name from your code: a consumer, a queue, a table, a
// scheme. The scope of a command holds a tenant, which is anybody's choice; that of an effect may be a command's.
var named = map[string]bool{
	"archive": true, "delivery": true, "flow": true, "guard": true, "inbox": true, "job": true, "lane": true, "observe": true, "outbox": true,
	"schedule": true, "sqs": true, "webhook": true, "worker": true,
	"command": false, "effect": false,
}

// Scope is the scope of an event if it is a name from your code: a consumer, a queue, a table or a scheme; else "". Events of
// commands and effects have none, because theirs may name a tenant.
func Scope(e pawl.Event) string {
	room, _, _ := strings.Cut(e.Op, ".")
	if named[room] {
		return e.Scope
	}
	return ""
}

// Scopes gives events their label scope. Its methods may be called at once.
type Scopes struct {
	of  func(pawl.Event) string
	max int

	mu   sync.RWMutex
	seen map[string]struct{}
}

// NewScopes returns the labels that o describes.
func NewScopes(o EventOptions) *Scopes {
	s := &Scopes{of: o.Scope, max: o.MaxScopes, seen: map[string]struct{}{"": {}}}
	if s.of == nil {
		s.of = Scope
	}
	if s.max <= 0 {
		s.max = defaultMaxScopes
	}
	return s
}

// Of is the label of an event.
func (s *Scopes) Of(e pawl.Event) string {
	scope := strings.ToValidUTF8(s.of(e), "\uFFFD")
	s.mu.RLock()
	_, known := s.seen[scope]
	s.mu.RUnlock()
	if known || s.learn(scope) {
		return scope
	}
	return OtherScope
}

// learn reports whether there is room for one more; "" is not counted.
func (s *Scopes) learn(scope string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.seen[scope]; !known && len(s.seen) > s.max {
		return false
	}
	s.seen[scope] = struct{}{}
	return true
}
