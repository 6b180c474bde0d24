package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// A keyStore stands for Redis: a store of keys outside PostgreSQL, over HTTP. It forgets nothing
// while the lab is open. PUT is SETNX, GET is EXISTS and DELETE is DEL; the path is the key.
type keyStore struct {
	url    string
	server *http.Server
	mu     sync.Mutex
	keys   map[string]bool
}

func openKeyStore() (*keyStore, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &keyStore{url: "http://" + socket.Addr().String(), keys: map[string]bool{}}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.server.Serve(socket) }()
	return s, nil
}

func (s *keyStore) close() { _ = s.server.Close() }

func (s *keyStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.keys[r.URL.Path]
	switch r.Method {
	case http.MethodPut:
		s.keys[r.URL.Path] = true
		if !known {
			w.WriteHeader(http.StatusCreated)
		}
	case http.MethodDelete:
		delete(s.keys, r.URL.Path)
	default:
		if !known {
			w.WriteHeader(http.StatusNotFound)
		}
	}
}

// A keyClient is the URL of a keyStore.
type keyClient string

// setNX sets a key and reports whether it was absent.
func (c keyClient) setNX(ctx context.Context, key string) (bool, error) {
	status, err := c.call(ctx, http.MethodPut, key)
	return status == http.StatusCreated, err
}

func (c keyClient) exists(ctx context.Context, key string) (bool, error) {
	status, err := c.call(ctx, http.MethodGet, key)
	return status == http.StatusOK, err
}

func (c keyClient) del(ctx context.Context, key string) error {
	_, err := c.call(ctx, http.MethodDelete, key)
	return err
}

func (c keyClient) call(ctx context.Context, method, key string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, method, string(c)+"/"+key, nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	_ = answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNotFound:
		return answer.StatusCode, nil
	}
	return 0, fmt.Errorf("the key store answers %s", answer.Status)
}
