package service_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/service"
)

func (b *bed) enqueue(n int) {
	b.Helper()
	for range n {
		_, err := job.Enqueue(b.Context(), b.eyes, job.Request{Queue: "q", Kind: "k", Payload: []byte("1")})
		b.must(err)
	}
}

// Ready answers 503 before the parts are at work, during a shutdown, and when the schema no longer
// matches. After the beginning of a shutdown the app works on for StopDelay. The health address
// answers until Run returns.
func TestReady(t *testing.T) {
	t.Parallel()
	b := setup(t)
	free := b.listener()
	address := free.Addr().String()
	_ = free.Close()
	app := b.app(b.pool(b.url, 8), service.Config{StopDelay: 3 * time.Second, HealthAddress: address})
	app.Worker(job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{job.HandleTx("k", ignoreJob)}})
	if status, text := probe(app.Ready()); status != http.StatusServiceUnavailable || !strings.Contains(text, "starting") {
		t.Errorf("before Run: %d %s", status, text)
	}
	if status, text := probe(app.Live()); status != http.StatusOK {
		t.Errorf("live before Run: %d %s", status, text)
	}
	r := b.run(app)
	served := func(path string) int {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			return 0
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	if live, ready := served("/livez"), served("/readyz"); live != http.StatusOK || ready != http.StatusOK {
		t.Errorf("the health address answers %d and %d", live, ready)
	}
	b.exec("update pawl.migration set api_hash = 'other' || api_hash")
	b.until("it is not ready on another schema", func() bool {
		status, text := probe(app.Ready())
		return status == http.StatusServiceUnavailable && strings.Contains(text, "pawl migrate up")
	})
	b.exec("update pawl.migration set api_hash = substr(api_hash, 6)")
	b.until("it is ready again", func() bool { return served("/readyz") == http.StatusOK })

	r.stop()
	b.until("it says that it stops", func() bool { return served("/readyz") == http.StatusServiceUnavailable })
	b.enqueue(1)
	b.until("it works on", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	b.must(r.result())
	if status := served("/livez"); status != 0 {
		t.Errorf("after the end the health address answers %d", status)
	}
}
