package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/command/httpkey"
)

// A web configures a handler behind a real HTTP server and its requests.
type web struct {
	handler func(*bed) http.Handler
	// hold runs before the measurement and starts a request that holds the key.
	hold    func(ctx context.Context, b *bed) (release func(), err error)
	key     func() string
	payload string
	expect  error // a status, if the response is not the command's
}

// A status is the response to a request that was not executed.
type status int

func (s status) Error() string { return fmt.Sprintf("%d %s", int(s), http.StatusText(int(s))) }

const (
	conflict = status(http.StatusConflict)
	mismatch = status(http.StatusUnprocessableEntity)
)

// overHTTP measures requests through a loopback socket. The server and its clients share a process.
func overHTTP(w web) measure {
	return func(ctx context.Context, b *bed, s scale) (Round, error) {
		server := httptest.NewServer(w.handler(b))
		defer server.Close()
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: poolConns}}
		defer client.CloseIdleConnections()
		release := func() {}
		defer func() { release() }()
		return commands(func(ctx context.Context, _ *bed, key, payload string) ([]byte, error) {
			return post(ctx, client, server.URL, key, payload)
		}, func(ctx context.Context, b *bed) (err error) {
			if w.hold != nil {
				release, err = w.hold(ctx, b)
			}
			return err
		}, w.key, w.payload, w.expect)(ctx, b, s)
	}
}

// post sends one request and reads the whole response.
func post(ctx context.Context, client *http.Client, url, key, payload string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(payload))
	if err != nil {
		return nil, err
	}
	r.Header.Set(httpkey.KeyHeader, `"`+key+`"`)
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		return nil, status(response.StatusCode)
	}
	return answer, err
}

func tenant(*http.Request) (string, error) { return "bench", nil }

// keyed returns a handler behind httpkey.
func keyed(b *bed) http.Handler {
	return httpkey.Once(b.pool, tenant, httpkey.Options{Hooks: quiet}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		_, err := tx.Exec(r.Context(), insertEffect, 1)
		if err == nil {
			_, err = w.Write(made)
		}
		return err
	})
}

// holdKeyed makes a request of the same route claim the held key under a lease. Its handler waits
// until release is called.
func holdKeyed(ctx context.Context, b *bed) (release func(), err error) {
	entered, leave := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(httpkey.Leased(b.pool, tenant, httpkey.Lease{}, httpkey.Options{Hooks: quiet},
		func(w http.ResponseWriter, _ *http.Request, _ *httpkey.Attempt) error {
			close(entered)
			<-leave
			return nil
		}))
	answered := make(chan error, 1)
	go func() {
		_, err := post(ctx, http.DefaultClient, server.URL, heldKey(), "p")
		answered <- err
	}()
	release = func() { close(leave); server.Close() }
	select {
	case <-entered:
		return release, nil
	case err := <-answered:
		server.Close()
		return func() {}, fmt.Errorf("the request that was to hold the key has ended: %w", errors.Join(err, context.Cause(ctx)))
	}
}

// tabled returns the same handler with a handwritten table of keys.
func tabled(b *bed) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := byHand(r.Context(), b, strings.Trim(r.Header.Get(httpkey.KeyHeader), `"`), string(body))
		switch {
		case errors.Is(err, errReused):
			http.Error(w, err.Error(), int(mismatch))
		case errors.Is(err, errBusy):
			http.Error(w, err.Error(), int(conflict))
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			_, _ = w.Write(answer)
		}
	})
}

func holdTabled(ctx context.Context, b *bed) (release func(), err error) {
	return func() {}, holdByHand(ctx, b)
}

// unkeyed returns the same handler without a key.
func unkeyed(b *bed) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer, err := bare(r.Context(), b, "", "")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(answer)
	})
}

// httpPlans returns the rows of commands that arrive as HTTP requests.
func httpPlans() []plan {
	hand := Line{Who: "by hand", How: "a handler with a table of keys", Floor: true}
	row := func(id, title, how string, ours, theirs web) plan {
		return plan{Row: Row{ID: id, Title: title + ", 16 callers", Unit: commandsPerSec},
			entries: []entry{
				{who("Pawl", how), pawlSystem, overHTTP(ours)},
				{hand, loopSystem, overHTTP(theirs)},
				{who("no key", "a handler that ignores the key and writes the row"), loopSystem, overHTTP(web{handler: unkeyed, key: knownKey, payload: "p"})},
			}}
	}
	return []plan{
		row("command-http", "HTTP requests that write one row, each key new", "httpkey.Once",
			web{handler: keyed, key: freshKey(), payload: "p"}, web{handler: tabled, key: freshKey(), payload: "p"}),
		row("command-http-replay", "HTTP requests that were answered before", "httpkey.Once",
			web{handler: keyed, key: knownKey, payload: "p"}, web{handler: tabled, key: knownKey, payload: "p"}),
		row("command-http-conflict", "HTTP requests that another caller is at, answered 409", "httpkey.Once, against a request of httpkey.Leased",
			web{handler: keyed, hold: holdKeyed, key: heldKey, payload: "p", expect: conflict},
			web{handler: tabled, hold: holdTabled, key: heldKey, payload: "p", expect: conflict}),
		row("command-http-mismatch", "HTTP requests whose key came with another body, answered 422", "httpkey.Once",
			web{handler: keyed, key: knownKey, payload: "q", expect: mismatch}, web{handler: tabled, key: knownKey, payload: "q", expect: mismatch}),
	}
}
