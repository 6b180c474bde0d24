// Command provider is a payment provider for trying out the service: POST /charges charges once for
// each Idempotency-Key. Every fifth request is charged and gets no response.
package main

import (
	"cmp"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/provider"
)

func main() {
	if len(os.Args) > 1 {
		log.Fatal("usage: [LISTEN=HOST:PORT] provider")
	}
	address := cmp.Or(os.Getenv("LISTEN"), "localhost:9000")
	log.Printf("charging at http://%s/charges", address)
	server := &http.Server{Addr: address, Handler: handler(), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func handler() http.Handler {
	return provider.New(24*time.Hour, func(n int, _ *http.Request) provider.Lie {
		if n%5 == 4 {
			return provider.CutAfter
		}
		return ""
	})
}
