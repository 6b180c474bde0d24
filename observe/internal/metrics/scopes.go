package metrics

import (
	"strings"
	"sync"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/observe"
)

// other is the label of events beyond EventOptions.MaxScopes.
const other = "other"

const defaultMaxScopes = 200

// Scopes maps events to their label scope. Its methods are safe for concurrent use.
type Scopes struct {
	of  func(pawl.Event) string
	max int

	mu   sync.RWMutex
	seen map[string]struct{}
}

// NewScopes returns Scopes with the options o.
func NewScopes(o observe.EventOptions) *Scopes {
	s := &Scopes{of: o.Scope, max: o.MaxScopes, seen: map[string]struct{}{"": {}}}
	if s.of == nil {
		s.of = observe.Scope
	}
	if s.max <= 0 {
		s.max = defaultMaxScopes
	}
	return s
}

// Of returns the label of an event.
func (s *Scopes) Of(e pawl.Event) string {
	scope := strings.ToValidUTF8(s.of(e), "\uFFFD")
	s.mu.RLock()
	_, known := s.seen[scope]
	s.mu.RUnlock()
	if known || s.learn(scope) {
		return scope
	}
	return other
}

// learn adds a scope and reports whether there was room. The empty scope is not counted.
func (s *Scopes) learn(scope string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.seen[scope]; !known && len(s.seen) > s.max {
		return false
	}
	s.seen[scope] = struct{}{}
	return true
}
