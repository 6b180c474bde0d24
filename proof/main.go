// Command proof runs the tests that the gate omits: real brokers, browsers, failovers, every
// PostgreSQL version, and runs of many minutes. Each finished stage adds a line to
// proof/results.jsonl, from which docs/proof.md is rendered.
//
//	go run ./proof                  every stage whose inputs have no recorded pass
//	go run ./proof brokers browser  these stages, if their inputs have no recorded pass
//	go run ./proof --force brokers  this stage in any case
//	go run ./proof --list           the stages, and whether their inputs have changed
//
// A failed stage does not stop the others. An interrupted run continues, because passed stages are
// skipped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("proof", flag.ContinueOnError)
	force := flags.Bool("force", false, "run the stages even if their inputs have a recorded pass")
	page := flags.Bool("page", false, "render docs/proof.md again, and run nothing")
	list := flags.Bool("list", false, "list the stages and whether their inputs have changed, and run nothing")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "usage: go run ./proof [--force] [--list] [--page] [STAGE ...]\n\nRuns the tests that the gate omits, and records the results in proof/results.jsonl.\n\n")
		flags.PrintDefaults()
		fmt.Fprintln(flags.Output(), "\nstages:")
		w := tabwriter.NewWriter(flags.Output(), 0, 0, 2, ' ', 0)
		for _, s := range stages {
			fmt.Fprintf(w, "  %s\t%s\n", s.name, s.shows)
		}
		w.Flush()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(flags.Args())
	if err != nil {
		return err
	}
	tree, err := openTree(ctx)
	if err != nil {
		return err
	}
	results, err := readResults()
	if err != nil {
		return err
	}
	if *page {
		return writePage(results)
	}
	if *list {
		return printStages(ctx, out, tree, chosen, results)
	}
	var failed []string
	for _, s := range chosen {
		inputs, err := tree.hash(s.inputs)
		if err != nil {
			return err
		}
		if last, ok := lastPass(results, s.name); ok && last.Inputs == inputs && !*force {
			fmt.Fprintf(out, "== %s: passed with these inputs, on %s at %s\n", s.name, last.Began.Format("2 January 2006"), last.Commit)
			continue
		}
		fmt.Fprintf(out, "== %s: %s\n", s.name, s.shows)
		r, err := s.run(ctx, out)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted in stage %s: it is not recorded, and the next run repeats it", s.name)
		}
		r.Commit, r.Inputs = tree.commit, inputs
		if results, err = addResult(results, r); err != nil {
			return err
		}
		if err := writePage(results); err != nil {
			return err
		}
		fmt.Fprintf(out, "== %s: %s after %d s\n", s.name, r.outcome(), r.Seconds)
		if len(r.Failures) > 0 {
			failed = append(failed, s.name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// choose returns the named stages, or all.
func choose(names []string) (chosen []stage, err error) {
	if len(names) == 0 {
		return stages, nil
	}
	for _, name := range names {
		s, ok := stageNamed(name)
		if !ok {
			return nil, fmt.Errorf("there is no stage %q: list the stages with go run ./proof --list", name)
		}
		chosen = append(chosen, s)
	}
	return chosen, nil
}

// printStages prints the last pass of each stage and whether its inputs have changed since.
func printStages(ctx context.Context, out io.Writer, tree tree, chosen []stage, results []result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range chosen {
		inputs, err := tree.hash(s.inputs)
		if err != nil {
			return err
		}
		last, ok := lastPass(results, s.name)
		switch {
		case !ok:
			fmt.Fprintf(w, "%s\tnever passed\t\n", s.name)
		case last.Inputs == inputs:
			fmt.Fprintf(w, "%s\tcurrent\tpassed on %s, %d s\n", s.name, last.Began.Format("2006-01-02"), last.Seconds)
		default:
			fmt.Fprintf(w, "%s\tstale\tpassed on %s at %s, %s\n", s.name, last.Began.Format("2006-01-02"), last.Commit, tree.since(ctx, last.Commit))
		}
	}
	return w.Flush()
}
