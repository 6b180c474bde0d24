package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// A stage is an independent part of the proof.
type stage struct {
	name  string
	shows string // what a pass shows
	// inputs are the files that the result depends on: sets of git pathspecs, in which :! excludes.
	inputs [][]string
	// command prints failures to its standard output as go test does, and then exits with a
	// non-zero status. A line that begins with "counted:" is kept for the page.
	command func() ([]string, error)
}

// engine are the files that nearly every stage depends on: the SQL contract and all Go code.
var engine = []string{"*.go", "*.sql", "*go.mod", "*go.sum", "go.work", ":!bench", ":!proof", ":!internal/testbed/layers", ":!internal/testbed/surface"}

// lives are the packages whose proof tests kill processes or run for long.
var lives = []string{"./consumer", "./job", "./outbox", "./step", "./schedule", "./service", "./transport/webhook", "./transport/pawlsqs", "./pawltest", "./examples/service"}

// stages are in the order in which they run.
var stages = []stage{
	{"contract", "the SQL contract in every interleaving, its mutants, and the plans of its hot statements",
		[][]string{{"schema", "internal/testbed/schematest", "internal/testbed/pgtest", "pawltest/*.go", "docs/reference/mutants.md"}},
		proofTests("./internal/testbed/schematest")},
	{"lives", "workers, relays, keepers, receivers and payers that are killed or hang, again and again",
		[][]string{engine}, proofTests(lives...)},
	{"races", "the same under the race detector", [][]string{engine}, raced(proofTests(lives...))},
	{"doors", "every attack on a lent transaction at every door", [][]string{engine}, allTests("./internal/testbed/doors")},
	{"tool", "the demos, the crash lab, an incident and a restore", [][]string{engine, {"cmd/pawl", "dashboard"}},
		skip("TestDevBroker|TestDevKafka|TestDevRabbitMQ|TestDemo_Broker", proofTests("./cmd/pawl", "./cmd/pawl/internal/lab"))},
	{"release", "every published module, built from a module proxy; the files of a release, installed into empty roots; an upgrade under load, and back",
		[][]string{engine, {"README.md", "RELEASING.md", "LICENSE", "deploy/Containerfile", "docs/operating/deploy.md", "cmd/pawl", "dashboard"}}, proofTests("./internal/testbed/release")},
	{"download", "a PostgreSQL that is fetched through npm", [][]string{{"internal/testbed/postgres"}}, proofTests("./internal/testbed/postgres")},
	{"size", "the figures of the page on size, measured in a run", [][]string{engine}, proofTests("./cmd/pawl/internal/sizing")},
	{"versions", "what depends on the server most, on PostgreSQL 15 to 18", [][]string{engine, {"proof/versions"}}, script("proof/versions")},
	{"brokers", "sources, sinks and counted runs on NATS, RabbitMQ, Kafka, SQS and three other programs that speak SQS", [][]string{engine, {"proof/brokers", "transport"}}, script("proof/brokers")},
	{"filter", "a filter in Redis: workers, Redis and PostgreSQL die, lie and are restored; and what it saves",
		[][]string{engine, {"filter"}}, proofTests("./filter/pawlredis")},
	{"guides", "the tutorials as written, and the Python and JavaScript of the guides with the packages that their readers use",
		[][]string{engine, {"docs/guides", "docs/tutorials", "proof/guides"}}, script("proof/guides")},
	{"prometheus", "the metrics, scraped by a Prometheus", [][]string{engine, {"observe"}}, proofTests("./observe/prompawl")},
	{"browser", "the dashboard and the crash lab in Chromium", [][]string{engine, {"cmd/pawl", "dashboard", "internal/testbed/browsertest", "proof/browser"}}, script("proof/browser")},
	{"site", "the documentation site in Chromium: links, contrast, phone width, search, no request to another host",
		[][]string{{"*.md", "docs", "site", "Makefile", "internal/testbed/browsertest", "proof/site"}}, script("proof/site")},
	{"clock", "the tests that depend on dates, on eight days in a row, and across a midnight, an hour and a month's end", [][]string{engine, {".ci/clock"}}, script(".ci/clock")},
	{"soak", "every test of the gate, stopped for 3 to 10 s again and again, beside ten busy processes", [][]string{engine, {".ci/soak"}}, script(".ci/soak", "--times", "1")},
	{"failover", "a switchover, and the death of a primary, under Patroni", [][]string{engine}, proofTests("./internal/testbed/hatest")},
	{"benchmarks", "every row of the benchmark", [][]string{engine, {"bench"}}, proofTests("./bench")},
}

func stageNamed(name string) (stage, bool) {
	for _, s := range stages {
		if s.name == name {
			return s, true
		}
	}
	return stage{}, false
}

func script(words ...string) func() ([]string, error) {
	return func() ([]string, error) { return words, nil }
}

// proofTests runs the tests of the packages' *_proof_test.go files. The gate runs the others.
func proofTests(packages ...string) func() ([]string, error) {
	return func() ([]string, error) {
		var names []string
		for _, p := range packages {
			files, err := filepath.Glob(filepath.Join(p, "*_proof_test.go"))
			if err != nil {
				return nil, err
			}
			for _, file := range files {
				parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
				if err != nil {
					return nil, err
				}
				for _, d := range parsed.Decls {
					if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
						names = append(names, f.Name.Name)
					}
				}
			}
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("no tests in files *_proof_test.go of %s", strings.Join(packages, " "))
		}
		slices.Sort(names)
		return goTest(packages, "-run", "^("+strings.Join(names, "|")+")$"), nil
	}
}

// allTests runs all tests, including those that the gate runs in part.
func allTests(packages ...string) func() ([]string, error) {
	return func() ([]string, error) { return goTest(packages), nil }
}

func goTest(packages []string, flags ...string) []string {
	return slices.Concat([]string{"go", "test", "-tags", "proof", "-trimpath", "-count=1", "-timeout", "60m", "-v"}, flags, packages)
}

// skip omits the tests that another stage runs.
func skip(names string, command func() ([]string, error)) func() ([]string, error) {
	return with(command, "-skip", names)
}

func raced(command func() ([]string, error)) func() ([]string, error) { return with(command, "-race") }

// with adds flags to a go test command.
func with(command func() ([]string, error), flags ...string) func() ([]string, error) {
	return func() ([]string, error) {
		all, err := command()
		if err != nil {
			return nil, err
		}
		return slices.Insert(all, 2, flags...), nil
	}
}
