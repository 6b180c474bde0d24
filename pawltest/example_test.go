package pawltest_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pawl-go/pawl/internal/pgtest"
	"github.com/pawl-go/pawl/pawltest"
)

// A provider that charges and does not answer. Whoever asks again with the same key is told what was done; without a key it is done
// again.
func ExampleNewProvider() {
	t := &pgtest.Example{} // in a test, your *testing.T
	defer t.End()
	p := pawltest.NewProvider(t, time.Hour, func(n int, _ *http.Request) pawltest.Lie {
		if n == 0 {
			return pawltest.FailAfter
		}
		return ""
	})
	post := func(key string) {
		r, err := http.NewRequest(http.MethodPost, p.URL+"/charges", strings.NewReader("1250 EUR"))
		if err != nil {
			panic(err)
		}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			panic(err)
		}
		_ = response.Body.Close()
		fmt.Println(response.StatusCode, "charges:", len(p.Charges()))
	}

	post("order-17")
	post("order-17")
	post("")
	// Output:
	// 500 charges: 1
	// 200 charges: 1
	// 200 charges: 2
}
