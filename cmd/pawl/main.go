// Command pawl installs and checks Pawl's schema, looks at and changes its rows, and runs private
// servers for development.
//
// Package cli has the commands. This file only starts them.
package main

import (
	"os"

	"github.com/pawl-go/pawl/cmd/pawl/internal/cli"
)

func main() { os.Exit(cli.Main()) }
