// Command pawl installs and checks Pawl's schema and runs a private PostgreSQL for development.
//
// It only wires: what it does lives in the packages of the core module.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/pawl-go/pawl/cmd/pawl/internal/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends us at once
	return cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
