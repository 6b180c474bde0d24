//go:build proof

package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	lib "github.com/pawl-go/pawl"
)

// quiet hooks drop all events.
var quiet = lib.Hooks{OnEvent: func(context.Context, lib.Event) {}}

// shellWords splits a line as a shell does, with single quotes.
func shellWords(line string) (all []string) {
	for n, part := range strings.Split(line, "'") {
		if n%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}

// background runs something until the test ends.
func background(t *testing.T, what string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	})
	t.Cleanup(stop)
	return stop
}
