package pawltest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/pawltest"
)

// A declined card stays declined under its key, and nothing is charged. The body names the card.
func TestProvider_DeclinesForGood(t *testing.T) {
	t.Parallel()
	p := pawltest.NewProvider(t, time.Hour, func(n int, r *http.Request) pawltest.Lie {
		body, _ := io.ReadAll(r.Body)
		switch {
		case n == 0:
			return pawltest.FailBefore
		case n < 3 && strings.Contains(string(body), "poor"):
			return pawltest.Decline
		}
		return ""
	})
	for n, want := range []int{500, 402, 402, 402, 200} {
		key, body := "k", "poor"
		if n == 4 {
			key, body = "another", "rich"
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", key)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("request %d: %s, want %d", n, response.Status, want)
		}
	}
	if charges := p.Charges(); len(charges) != 1 || charges[0].Body != "rich" {
		t.Errorf("charged: %+v", charges)
	}
}
