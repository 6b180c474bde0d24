package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// A Func counts a message as published if and only if its own call succeeded.
func TestFunc_Answers(t *testing.T) {
	t.Parallel()
	transporttest.RunSink(t, transporttest.Destination{Named: true, Open: func(t *testing.T, a *transporttest.Responses) transporttest.Outlet {
		server := httptest.NewServer(answering{a})
		t.Cleanup(server.Close)
		t.Cleanup(server.CloseClientConnections) // requests that are never answered
		return transporttest.Outlet{Sink: outbox.Func(requestTo(server.URL)), Cut: server.CloseClientConnections, Refused: func(m pawl.Message) pawl.Message {
			m.Headers["refuse"] = "yes"
			return m
		}}
	}})
}

// requestTo returns a function that sends a message as a request. Each request has its own
// connection: net/http retries none that is lost on a new connection.
func requestTo(url string) func(context.Context, pawl.Message) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context, m pawl.Message) error {
		request, err := outbox.NewRequest(ctx, url, m)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return fmt.Errorf("%s: %w", m.ID, err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusNoContent {
			err = errors.New(string(text))
		}
		return err
	}
}

// answering is a receiver that answers when answers.Send says so.
type answering struct{ answers *transporttest.Responses }

func (s answering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Idempotency-Key")
	_, _ = io.Copy(io.Discard, r.Body)
	s.answers.Arrived()
	confirmed := []string{id}
	if r.Header.Get("refuse") != "" {
		confirmed = nil
	}
	now := make(chan struct{})
	s.answers.Send([]string{id}, confirmed, func() { close(now) })
	select {
	case <-now:
	case <-r.Context().Done():
		return
	}
	if confirmed == nil {
		http.Error(w, id+" is refused", http.StatusUnprocessableEntity)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
