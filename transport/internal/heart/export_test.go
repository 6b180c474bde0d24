package heart

// Holds reports whether key is held.
func (h *Heart[K]) Holds(key K) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[key] != nil
}
