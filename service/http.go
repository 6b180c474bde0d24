package service

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/ranges"
)

// readHeaderTimeout ends connections of clients that send nothing.
const readHeaderTimeout = 10 * time.Second

// A server is the runner of an HTTP server.
type server struct {
	app      *App
	address  string
	listener net.Listener
	http     *http.Server
}

func newServer(cfg HTTPConfig, a *App) (*server, error) {
	s := &server{app: a, address: cfg.Address, listener: cfg.Listener, http: cfg.Server}
	if s.http == nil {
		s.http = &http.Server{ReadHeaderTimeout: readHeaderTimeout}
	}
	if cfg.Handler != nil {
		s.http.Handler = cfg.Handler
	}
	if s.http.BaseContext == nil {
		s.http.BaseContext = func(net.Listener) context.Context {
			return pawl.WithHooks(context.Background(), a.house.hooks(a.cfg.Hooks))
		}
	}
	if err := ranges.NotNegative(cfg); err != nil {
		return nil, invalid("service.http", err)
	}
	switch {
	case s.http.Handler == nil:
		return nil, invalid("service.http", errors.New("the Handler is missing"))
	case s.listener == nil && s.address == "":
		return nil, invalid("service.http", errors.New("the Listener or the Address is missing"))
	}
	return s, nil
}

// Run serves until ctx ends. Then it accepts no more requests and waits for running ones.
func (s *server) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() {
		if s.http.TLSConfig != nil {
			ended <- s.http.ServeTLS(s.listener, "", "")
			return
		}
		ended <- s.http.Serve(s.listener)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.app.cfg.ShutdownTimeout*3/5)
	defer cancel()
	if err := s.http.Shutdown(patience); err != nil {
		s.app.cfg.Hooks.Emit(context.WithoutCancel(ctx), pawl.Event{Kind: pawl.EventError, Op: "service.http", Err: err})
		_ = s.http.Close()
	}
	return nil
}

// open listens on all addresses and starts the health server. The returned function stops that
// server and closes listeners that no part serves.
func (a *App) open() (end func(), err error) {
	var opened []net.Listener
	done := func() {
		for _, l := range opened {
			_ = l.Close() // a second time if it was served
		}
	}
	for _, p := range a.parts {
		s, is := p.runner.(*server)
		if !is {
			continue
		}
		if s.listener == nil {
			var err error
			if s.listener, err = net.Listen("tcp", s.address); err != nil {
				done()
				return nil, &pawl.Error{Op: "service.http", Err: err, Hint: "choose another Address"}
			}
		}
		opened = append(opened, s.listener)
	}
	if a.cfg.HealthAddress == "" {
		return done, nil
	}
	listener, err := net.Listen("tcp", a.cfg.HealthAddress)
	if err != nil {
		done()
		return nil, &pawl.Error{Op: "service.health", Err: err, Hint: "choose another HealthAddress"}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /livez", a.Live())
	mux.Handle("GET /readyz", a.Ready())
	health := &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderTimeout}
	go func() { _ = health.Serve(listener) }()
	return func() {
		done()
		_ = health.Close()
	}, nil
}
