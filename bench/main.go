package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"syscall"
)

func main() {
	if variant := os.Getenv(frozenVariant); variant != "" {
		fmt.Fprintln(os.Stderr, runFrozen(variant, os.Getenv(frozenURL)))
		os.Exit(1)
	}
	var (
		quick  = flag.Bool("quick", false, "every row in at most five minutes on two cores: 2 rounds, fewer jobs")
		only   = flag.String("only", "", "rows whose id holds one of these, with commas between; those of -list")
		name   = flag.String("who", "", "contenders whose name holds this; all if empty")
		file   = flag.String("json", "", "write everything to this `file`")
		list   = flag.Bool("list", false, "list the rows")
		render = flag.String("render", "", "print docs/performance.md from this `file`; nothing is measured")
		prof   = flag.String("cpuprofile", "", "write a processor profile of this process to this `file`")
		again  = flag.String("table", "", "print the table of this `file`; nothing is measured")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *list:
		listRows()
	case *render != "":
		err = show(*render, page)
	case *again != "":
		err = show(*again, table)
	default:
		err = profiled(*prof, func() error { return measureAll(ctx, *quick, *only, *name, *file) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func listRows() {
	for _, p := range plans() {
		fmt.Printf("%-14s %s\n", p.ID, p.Title)
	}
}

func show(file string, as func(Report) string) error {
	r, err := load(file)
	if err == nil {
		fmt.Print(as(r))
	}
	return err
}

func measureAll(ctx context.Context, quick bool, only, name, file string) error {
	s := scales["full"]
	if quick {
		s = scales["quick"]
	}
	r, err := run(ctx, s, strings.Split(only, ","), name, func(line string) { fmt.Fprintln(os.Stderr, line) })
	if len(r.Rows) > 0 {
		fmt.Print(table(r))
	}
	if len(r.Rows) > 0 && file != "" { // also what an interrupted run has
		err = errors.Join(err, r.save(file))
	}
	return err
}

// profiled runs fn under the profiler if there is a file for it.
func profiled(file string, fn func() error) error {
	if file == "" {
		return fn()
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return fn()
}

// stderr is where programs log that we embed.
type stderr struct{}

func (stderr) Write(text []byte) (int, error) { return os.Stderr.Write(text) }
