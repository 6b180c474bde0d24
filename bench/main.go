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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := bench(ctx, os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, args []string) error {
	o, err := parse(args, os.Stdout)
	switch {
	case err != nil:
		return err
	case o.list:
		listRows()
		return nil
	case o.render != "":
		return render(o)
	case o.table != "":
		r, err := load(o.table)
		if err == nil {
			fmt.Print(table(r) + barsText(r))
		}
		return err
	}
	return profiled(o.cpuprofile, func() error { return measureAll(ctx, o) })
}

func listRows() {
	for _, p := range allPlans() {
		fmt.Printf("%-22s %s\n", p.ID, p.Title)
	}
}

func measureAll(ctx context.Context, o options) error {
	s := scales["full"]
	if o.quick {
		s = scales["quick"]
	}
	if o.calm {
		s.calm = calmLimit
	}
	r, err := run(ctx, allPlans(), s, strings.Split(o.only, ","), o.who, func(line string) { fmt.Fprintln(os.Stderr, line) })
	if len(r.Rows) > 0 {
		fmt.Print(table(r) + barsText(r))
	}
	if len(r.Rows) > 0 && o.json != "" { // also the rows of an interrupted run
		err = errors.Join(err, r.save(o.json))
	}
	return err
}

// profiled runs fn, with a CPU profile if file is set.
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

// stderr is the log output of embedded programs.
type stderr struct{}

func (stderr) Write(text []byte) (int, error) { return os.Stderr.Write(text) }
