package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// options are the command line's values, named after their flags.
type options struct {
	quick, calm, list bool
	only, who         string
	json, cpuprofile  string
	table, render     string
	second, charts    string // with render
}

const help = `bench compares Pawl with alternatives on PostgreSQL: River, and a handwritten loop.

It starts a private, durable PostgreSQL server, gives each contender a fresh database there, and lets the contenders take turns.
It prints a table of figures, then each bar as met or NOT met. The exit code is 0 even if a bar is not met.
The PostgreSQL programs and pgbench must be installed. Do not use the machine while it measures.

Examples, with their durations on two cores:

  go run ./bench -quick                          5 to 10 minutes   every row, roughly
  go run ./bench -quick -only pickup             1 minute          the rows whose id contains "pickup"
  go run ./bench -only noop,step -who Pawl       2 minutes         two rows with all their rounds, only Pawl's lines
  go run ./bench -calm -json FILE                about 90 minutes  all rows, saved to a file; each round waits for a quiet machine
  go run ./bench -list                           1 second          the id and title of every row
  go run ./bench -table FILE                     1 second          the table and the bars of a saved run
  go run ./bench -render FILE -second FILE2 -charts docs/images > docs/performance.md
                                                 1 second          the page, rendered from saved runs

Flags:

`

// parse parses the command line. It returns flag.ErrHelp once it has printed help to out.
func parse(args []string, out io.Writer) (o options, err error) {
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(io.Discard) // main prints the error once
	set.Usage = func() {}
	set.BoolVar(&o.quick, "quick", false, "take 2 rounds of fewer jobs, and omit rows that need minutes")
	set.BoolVar(&o.calm, "calm", false, "wait before each round until other programs use less than 5 % of the processors, at most 2 minutes")
	set.StringVar(&o.only, "only", "", "measure only rows whose id contains one of these `parts`, separated by commas")
	set.StringVar(&o.who, "who", "", "measure only lines whose contender's name contains this `part`")
	set.StringVar(&o.json, "json", "", "write all figures to this `file`, also if the run is interrupted")
	set.StringVar(&o.cpuprofile, "cpuprofile", "", "write a processor profile of this process to this `file`")
	set.BoolVar(&o.list, "list", false, "list the rows and measure nothing")
	set.StringVar(&o.table, "table", "", "print the table and the bars of this `file` and measure nothing")
	set.StringVar(&o.render, "render", "", "print docs/performance.md, rendered from this `file`, and measure nothing")
	set.StringVar(&o.second, "second", "", "with -render: compare the run with the second one in this `file`")
	set.StringVar(&o.charts, "charts", "", "with -render: write the chart to this `directory`, and show it on the page")
	err = set.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, help)
		set.SetOutput(out)
		set.PrintDefaults()
		return o, err
	}
	if err != nil {
		return o, fmt.Errorf("%w: see go run ./bench -help", err)
	}
	return o, o.check(set.Args())
}

// check refuses invalid options before anything is measured.
func (o options) check(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("the argument %q belongs to no flag: see go run ./bench -help", rest[0])
	}
	if o.render == "" && o.second+o.charts != "" {
		return errors.New("-second and -charts need -render FILE, which renders the page")
	}
	if o.calm {
		if err := canCalm(); err != nil {
			return err
		}
	}
	for name, file := range map[string]string{"-json": o.json, "-cpuprofile": o.cpuprofile} {
		if err := writable(file); err != nil {
			return fmt.Errorf("%s %s: %w", name, file, err)
		}
	}
	return nil
}

// writable refuses a file that could not be written at the end of a run.
func writable(file string) error {
	if file == "" {
		return nil
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return errors.New("it is a directory: name a file in it")
	}
	probe, err := os.CreateTemp(filepath.Dir(file), ".bench-*")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the directory does not exist: make it with mkdir -p %s", filepath.Dir(file))
	}
	if err != nil {
		return fmt.Errorf("the directory cannot be written to: %w", err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// choose returns the rows whose id contains one of the parts. Each has the lines whose contender's
// name contains who. Each part must match a row.
func choose(plans []plan, s scale, parts []string, who string) (chosen []plan, err error) {
	if parts = slices.DeleteFunc(slices.Clone(parts), func(part string) bool { return part == "" }); len(parts) == 0 {
		parts = []string{""}
	}
	for _, part := range parts {
		named := slices.ContainsFunc(plans, func(p plan) bool { return strings.Contains(p.ID, part) })
		if !named && part != "" {
			return nil, fmt.Errorf("no row has an id that contains %q: list them with go run ./bench -list", part)
		}
	}
	var names []string
	slow := false
	for _, p := range plans {
		switch {
		case !slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(p.ID, part) }):
			continue
		case p.slow && s.half == 0:
			slow = true
			continue
		}
		for _, e := range p.entries {
			names = append(names, e.Who)
		}
		p.entries = slices.DeleteFunc(slices.Clone(p.entries), func(e entry) bool { return !strings.Contains(e.Who, who) })
		p.Bars = slices.DeleteFunc(slices.Clone(p.Bars), func(b Bar) bool { return !strings.Contains(b.Who, who) })
		if len(p.entries) > 0 {
			chosen = append(chosen, p)
		}
	}
	switch {
	case len(chosen) > 0:
		return chosen, nil
	case len(names) > 0:
		slices.Sort(names)
		return nil, fmt.Errorf("no line of these rows has a name that contains %q: the names are %s", who, strings.Join(slices.Compact(names), "; "))
	case slow:
		return nil, errors.New("these rows take minutes and are omitted with -quick: run them without it")
	}
	return nil, errors.New("there are no rows to measure")
}
