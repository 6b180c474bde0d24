package main

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if variant := os.Getenv(frozenVariant); variant != "" {
		fmt.Fprintln(os.Stderr, runFrozen(variant, os.Getenv(frozenURL)))
		os.Exit(1)
	}
	os.Exit(m.Run())
}
