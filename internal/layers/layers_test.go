// Package layers holds the plan of the house as a test: which package may import which.
package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/pawl-go/pawl"

// plan names, for each package, the packages of ours it may import outside tests. The order is the order of the layers:
// words, contract, rows, motion, doors, tools. A package that is not here has no room yet: find it one.
var plan = []struct {
	pkg  string
	uses []string
}{
	// words: no SQL text, no package of ours but their own innards
	{"internal/callback", nil},
	{"internal/jcs", nil},
	{"internal/payload", nil},
	{"internal/receipt", nil},
	{"internal/sqldriver", nil},
	{"internal/verdict", nil},
	{"internal/watched", nil},
	{".", []string{"internal/callback", "internal/jcs", "internal/receipt", "internal/sqldriver", "internal/verdict", "internal/watched"}},
	{"internal/owner", []string{"."}},
	// tools that know nothing
	{"internal/fault", nil},
	{"internal/solo", nil},
	{"internal/pooler", nil},
	{"internal/pace", nil},
	{"internal/text", nil},
	{"internal/script", nil},
	{"internal/jsonptr", nil},
	{"internal/conns", []string{"internal/verdict"}},
	{"internal/progress", []string{"."}},
	{"internal/direct", []string{".", "internal/callback"}},
	{"internal/surface", nil},
	{"internal/sizing", nil},
	{"internal/checker", nil}, // it judges the others, so it shares nothing with them
	{"internal/engine", []string{".", "internal/verdict"}},
	// the contract
	{"schema", []string{"internal/script"}},
	{"migrate", []string{".", "internal/engine", "internal/pooler", "internal/script", "schema"}},
	{"internal/answer", []string{"."}},
	{"internal/contract", []string{".", "internal/conns", "internal/watched", "internal/text", "internal/verdict"}},
	{"internal/catalog", []string{".", "internal/watched"}},
	{"internal/txn", []string{".", "internal/callback", "internal/conns", "internal/watched", "internal/pace", "internal/verdict"}},
	{"internal/rollup", []string{".", "internal/conns", "internal/contract", "internal/pace", "internal/txn"}},
	// rows: they never import each other
	{"internal/delivery", []string{".", "internal/catalog", "internal/contract", "internal/verdict"}},
	{"inbox", []string{".", "internal/delivery"}},
	{"guard", []string{".", "internal/conns", "internal/contract", "internal/fault", "internal/txn", "internal/watched", "internal/pace", "internal/rollup", "internal/text", "internal/verdict"}},
	{"lock", []string{".", "internal/contract"}},
	{"command", []string{".", "internal/callback", "internal/conns", "internal/contract", "internal/fault", "internal/owner", "internal/sqldriver", "internal/txn", "internal/pace", "internal/verdict"}},
	{"command/httpkey", []string{".", "internal/payload", "internal/callback", "command", "internal/fault", "internal/sqldriver", "internal/pace"}},
	{"internal/kick", []string{".", "internal/contract", "internal/txn"}},
	{"job", []string{".", "internal/answer", "internal/payload", "internal/callback", "migrate", "internal/catalog", "internal/conns", "internal/contract", "internal/direct", "internal/progress", "internal/fault", "internal/kick", "internal/owner", "internal/pace", "internal/pooler", "internal/rollup", "internal/solo", "internal/txn", "internal/verdict"}},
	{"outbox", []string{".", "internal/callback", "internal/contract", "internal/fault", "internal/kick", "internal/pace", "job"}},
	{"step", []string{".", "internal/catalog", "internal/contract", "internal/fault", "internal/txn", "internal/pace", "internal/text", "internal/verdict"}},
	{"schedule", []string{".", "internal/callback", "internal/catalog", "internal/contract", "internal/fault", "internal/kick", "internal/pace", "internal/progress", "job", "migrate"}},
	{"schedule/cron", []string{".", "schedule"}},
	// motion
	{"consumer", []string{".", "internal/answer", "internal/payload", "internal/callback", "inbox", "internal/conns", "internal/progress", "internal/delivery", "internal/owner", "job", "lock", "migrate", "internal/fault", "internal/pace", "internal/receipt", "internal/rollup", "internal/solo", "internal/txn", "internal/watched", "internal/text", "internal/verdict"}},
	{"ops", []string{".", "internal/catalog", "internal/contract", "internal/pace", "internal/verdict"}},
	{"doctor", []string{".", "migrate", "internal/catalog", "internal/engine", "internal/pooler", "internal/text"}},
	{"service", []string{".", "internal/callback", "consumer", "job", "migrate", "outbox", "schedule", "internal/catalog", "internal/conns", "internal/direct", "internal/pace", "internal/progress"}},
	// doors
	{"internal/cloudevents", []string{"."}},
	{"internal/heart", nil},
	{"transport/pawlsqs", []string{".", "internal/callback", "internal/heart", "internal/jsonptr", "internal/pace"}},
	{"transport/pawlkafka", []string{".", "internal/callback", "internal/cloudevents", "internal/fault", "internal/jsonptr", "internal/pace"}},
	{"transport/pawlnats", []string{".", "internal/callback", "internal/cloudevents", "internal/fault", "internal/heart", "internal/jsonptr", "internal/pace"}},
	{"transport/pawlrabbitmq", []string{".", "internal/callback", "internal/cloudevents", "internal/fault", "internal/jsonptr", "internal/pace"}},
	{"transport/webhook", []string{".", "internal/callback", "internal/jsonptr", "internal/pace"}},
	{"transport/pawlsqs/sqstest", []string{"internal/pace"}},
	{"transport/pawlsqs/sqstest/conformance", nil},
	{"internal/patience", nil},
	{"internal/bounds", []string{".", "internal/patience"}},
	{"transport/transporttest", []string{".", "internal/patience", "internal/receipt"}},
	// what looks on
	{"observe", []string{"."}},
	{"observe/internal/metrics", []string{".", "observe", "ops", "internal/catalog"}},
	{"observe/prompawl", []string{".", "observe", "observe/internal/metrics"}},
	{"observe/otelpawl", []string{".", "consumer", "job", "observe", "observe/internal/metrics"}},
	{"dashboard", []string{".", "internal/callback", "internal/conns", "doctor", "internal/catalog", "ops", "internal/text", "internal/verdict"}},
	// for tests, ours and our users'
	{"internal/postgres", nil},
	{"internal/brokers", nil},
	{"internal/hatest", nil},
	{"internal/pgtest", []string{"internal/postgres"}},
	{"internal/pgtest/catalogue", nil},
	{"internal/pgtest/hostile", nil},
	{"internal/wireproxy", nil},
	{"internal/fleet", nil},
	{"internal/provider", nil},
	{"internal/stepper", []string{"."}},
	{"internal/jobtest", []string{".", "internal/contract", "job"}},
	{"pawltest", []string{".", "command/httpkey", "consumer", "inbox", "outbox", "transport/webhook", "internal/contract", "internal/pgtest", "internal/provider", "job", "migrate", "ops", "schema", "internal/pace"}},
	{"internal/counted", []string{".", "consumer", "job", "outbox", "pawltest", "internal/checker", "internal/fault", "internal/fleet", "internal/pace", "internal/receipt", "internal/wireproxy"}},
	// generators
	{"internal/incident", []string{".", "job", "step", "pawltest"}},
	{"internal/gen/sqlstates", nil},
	{"internal/gen/dist", []string{"migrate"}},
	{"observe/internal/gen", []string{"observe/internal/metrics"}},
	// the binary
	{"cmd/pawl/internal/broker", []string{".", "internal/brokers", "transport/pawlkafka", "transport/pawlnats", "transport/pawlrabbitmq", "transport/pawlsqs", "transport/pawlsqs/sqstest"}},
	{"cmd/pawl/internal/lab", []string{".", "cmd/pawl/internal/broker", "internal/fleet", "consumer", "dashboard", "internal/postgres", "internal/wireproxy", "job", "migrate", "transport/pawlsqs", "transport/pawlsqs/sqstest"}},
	{"cmd/pawl/internal/demo", []string{".", "cmd/pawl/internal/broker", "internal/fleet", "step", "consumer", "job", "outbox", "migrate", "internal/checker", "internal/fault", "internal/postgres", "internal/provider", "transport/webhook"}},
	{"cmd/pawl/internal/scaffold", nil},
	{"cmd/pawl/internal/cli", []string{".", "cmd/pawl/internal/lab", "cmd/pawl/internal/scaffold", "schema", "migrate", "ops", "doctor", "dashboard", "internal/brokers", "internal/postgres", "transport/pawlsqs", "transport/pawlsqs/sqstest", "transport/webhook", "cmd/pawl/internal/broker", "cmd/pawl/internal/demo", "internal/sizing", "internal/text", "internal/verdict"}},
	{"cmd/pawl", []string{"cmd/pawl/internal/cli"}},
	// the proof, and the benchmark
	{"proof", nil}, {"proof/rerun", nil},
	{"bench", []string{".", "command", "command/httpkey", "consumer", "job", "outbox", "ops", "schedule", "migrate", "internal/postgres"}},
}

// Every import of ours is in the plan, and the plan itself only points to rooms above it in the list.
func TestImports_FollowThePlan(t *testing.T) {
	t.Parallel()
	allowed := map[string][]string{}
	for _, room := range plan {
		for _, used := range room.uses {
			if _, above := allowed[used]; !above {
				t.Errorf("the plan lets %s import %s, which is not a layer below it", room.pkg, used)
			}
		}
		allowed[room.pkg] = room.uses
	}
	seen := map[string]bool{}
	for _, f := range sources(t) {
		pkg := path.Dir(f.name)
		uses, planned := allowed[pkg]
		if !planned {
			t.Errorf("%s: package %s is not in the plan", f.name, pkg)
			continue
		}
		seen[pkg] = true
		for _, imported := range f.imports {
			if used, ours := ourPackage(imported); ours && !slices.Contains(uses, used) {
				t.Errorf("%s imports %s, which the plan does not allow", f.name, imported)
			}
		}
	}
	for _, room := range plan {
		if !seen[room.pkg] {
			t.Errorf("the plan has a room %s without a source file", room.pkg)
		}
	}
}

// The core module needs pgx and the standard library; every SDK lives in a module of its own.
func TestCore_RequiresOnlyPgx(t *testing.T) {
	t.Parallel()
	satellites := modules(t)
	for _, f := range sources(t) {
		if slices.ContainsFunc(satellites, func(m string) bool { return m != "." && strings.HasPrefix(f.name, m+"/") }) {
			continue
		}
		for _, imported := range f.imports {
			if _, ours := ourPackage(imported); ours || !strings.Contains(strings.Split(imported, "/")[0], ".") {
				continue
			}
			if !strings.HasPrefix(imported, "github.com/jackc/pgx/v5") {
				t.Errorf("%s imports %s", f.name, imported)
			}
		}
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(mod), "\n") {
		required := regexp.MustCompile(`^(?:require|\t)\s*(\S+) v\S+$`).FindStringSubmatch(line)
		if required != nil && required[1] != "github.com/jackc/pgx/v5" {
			t.Errorf("go.mod requires %s directly", required[1])
		}
	}
}

type source struct {
	name    string // relative to the repository, with slashes
	imports []string
}

// sources returns every Go file that is neither a test nor part of a module made for tests or examples.
func sources(t *testing.T) (files []source) {
	t.Helper()
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (name == ".git" || name == "examples" || name == "internal/browsertest" || name == "internal/deploytest" || name == "internal/drivertest" || name == "internal/migratetest" || name == "internal/release" || name == "internal/webhooktest" || path.Base(name) == "testdata") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", name), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		f := source{name: name}
		for _, i := range parsed.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, imported)
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("found only %d source files", len(files))
	}
	return files
}

// modules returns the folders that hold a go.mod, relative to the repository.
func modules(t *testing.T) (dirs []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("../.."), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && path.Base(name) == "go.mod" {
			dirs = append(dirs, path.Dir(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func ourPackage(imported string) (name string, ours bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}
