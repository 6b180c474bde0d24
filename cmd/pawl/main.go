// Command pawl installs and checks Pawl's schema and runs a private PostgreSQL for development.
//
// It only wires: what it does lives in the packages of the core module.
package main

import (
	"os"

	"github.com/pawl-go/pawl/cmd/pawl/internal/cli"
)

func main() { os.Exit(cli.Main()) }
