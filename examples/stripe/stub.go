package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
)

// A stub implements the part of Stripe that the program needs: payment intents by key. It declines
// the test card for that, refuses an unknown one, and loses the first response to each other key.
type stub struct {
	mu   sync.Mutex
	keys map[string]int // number of requests by key
	made []string       // the orders that were charged
}

// startStub serves a stub until the process ends, and returns its URL.
func startStub() string { return httptest.NewServer(&stub{keys: map[string]int{}}).URL }

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = r.ParseForm()
	key, order := r.Header.Get("Idempotency-Key"), r.PostForm.Get("metadata[order]")
	s.keys[key]++
	w.Header().Set("Request-Id", "req_"+order)
	switch {
	case r.PostForm.Get("payment_method") == "pm_card_visa_chargeDeclined":
		fmt.Println("stub:", order, "is declined")
		w.WriteHeader(http.StatusPaymentRequired)
		fmt.Fprint(w, `{"error": {"type": "card_error", "code": "card_declined", "message": "Your card was declined."}}`)
	case r.PostForm.Get("payment_method") != "pm_card_visa":
		fmt.Println("stub:", order, "is refused")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error": {"type": "invalid_request_error", "code": "resource_missing", "message": "No such PaymentMethod."}}`)
	case s.keys[key] == 1:
		s.made = append(s.made, order)
		fmt.Println("stub:", order, "is charged, and the response is lost")
		panic(http.ErrAbortHandler)
	default:
		fmt.Println("stub:", order, "is known, and not charged again")
		fmt.Fprintf(w, `{"id": "pi_%s", "object": "payment_intent", "status": "succeeded"}`, order)
	}
}
