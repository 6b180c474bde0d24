package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The fifth request is charged without a response. A retry with its key returns the same charge.
func TestProvider(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(handler())
	defer server.Close()
	charge := func(key string) (status int) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/charges", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", key)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	for n, want := range []int{200, 200, 200, 200, 0, 200} {
		key := string(rune('a' + min(n, 4)))
		if got := charge(key); got != want {
			t.Errorf("request %d under %s: %d, want %d", n, key, got, want)
		}
	}
	answer, err := http.Get(server.URL + "/charges?key=e")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if text, _ := io.ReadAll(answer.Body); !strings.Contains(string(text), `"ch_5"`) {
		t.Errorf("the fifth is %s", text)
	}
}
