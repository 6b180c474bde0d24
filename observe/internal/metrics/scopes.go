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

// Scopes gives events their label scope. Its methods may be called at once.
type Scopes struct {
	of  func(pawl.Event) string
	max int

	mu   sync.RWMutex
	seen map[string]struct{}
}

// NewScopes returns the labels that o describes.
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

// Of is the label of an event.
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
