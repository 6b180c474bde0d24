package service

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main calls run and ends its context at SIGTERM or SIGINT. A second signal kills the process. If
// run returns an error, Main prints it to stderr and exits with code 1.
//
//	func main() { service.Main(run) }
func Main(run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
