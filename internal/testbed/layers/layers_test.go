// Package layers tests the architecture: which package may import which.
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

// plan lists, for each package, the packages of ours that it may import outside tests. The order is
// that of the layers: words, contract, rows, motion, transports, tools. Add each new package.
var plan = []struct {
	pkg  string
	uses []string
}{
	// words: no SQL, and no imports except their own internals
	{"internal/callback", nil},
	{"internal/jcs", nil},
	{"internal/payload", nil},
	{"internal/receipt", nil},
	{"internal/sqldriver", nil},
	{"internal/verdict", nil},
	{"internal/watched", nil},
	{".", []string{"internal/callback", "internal/jcs", "internal/receipt", "internal/sqldriver", "internal/verdict", "internal/watched"}},
	// tools without knowledge of Pawl
	{"internal/fault", nil},
	{"internal/solo", nil},
	{"internal/pace", nil},
	{"internal/ranges", nil},
	{"internal/text", nil},
	{"internal/script", nil},
	{"internal/conns", []string{".", "internal/callback", "internal/verdict"}},
	{"internal/progress", []string{"."}},
	{"internal/engine", []string{".", "internal/verdict"}},
	// the contract
	{"schema", []string{"internal/script"}},
	{"migrate", []string{".", "internal/engine", "internal/conns", "internal/script", "schema"}},
	{"internal/directive", []string{"."}},
	{"internal/contract", []string{".", "internal/conns", "internal/watched", "internal/text", "internal/verdict"}},
	{"internal/catalog", []string{".", "internal/watched"}},
	{"internal/txn", []string{".", "internal/callback", "internal/conns", "internal/watched", "internal/pace", "internal/verdict"}},
	{"internal/rollup", []string{".", "internal/conns", "internal/contract", "internal/pace", "internal/txn"}},
	// rows: they do not import each other
	{"internal/delivery", []string{".", "internal/catalog", "internal/contract", "internal/verdict", "internal/watched"}},
	{"inbox", []string{".", "internal/delivery"}},
	{"guard", []string{".", "internal/ranges", "internal/conns", "internal/contract", "internal/fault", "internal/txn", "internal/watched", "internal/pace", "internal/progress", "internal/rollup", "internal/text", "internal/verdict"}},
	{"lock", []string{".", "internal/contract"}},
	{"command", []string{".", "internal/ranges", "internal/callback", "internal/conns", "internal/contract", "internal/fault", "internal/sqldriver", "internal/txn", "internal/pace", "internal/verdict"}},
	{"command/httpkey", []string{".", "internal/ranges", "internal/payload", "internal/callback", "command", "internal/fault", "internal/sqldriver", "internal/pace"}},
	{"internal/kick", []string{".", "internal/contract", "internal/txn"}},
	{"job", []string{".", "internal/ranges", "internal/directive", "internal/payload", "internal/callback", "migrate", "internal/catalog", "internal/conns", "internal/contract", "internal/progress", "internal/fault", "internal/kick", "internal/pace", "internal/rollup", "internal/solo", "internal/txn", "internal/verdict"}},
	{"outbox", []string{".", "internal/ranges", "internal/callback", "internal/contract", "internal/fault", "internal/kick", "internal/pace", "job"}},
	{"step", []string{".", "internal/ranges", "internal/catalog", "internal/contract", "internal/fault", "internal/txn", "internal/pace", "internal/text", "internal/verdict"}},
	{"schedule", []string{".", "internal/callback", "internal/catalog", "internal/contract", "internal/fault", "internal/kick", "internal/pace", "internal/progress", "job", "migrate"}},
	{"schedule/cron", []string{".", "schedule"}},
	// motion
	{"consumer", []string{".", "internal/ranges", "internal/directive", "internal/payload", "internal/callback", "internal/conns", "internal/progress", "internal/delivery", "internal/contract", "job", "lock", "migrate", "internal/fault", "internal/pace", "internal/receipt", "internal/rollup", "internal/solo", "internal/txn", "internal/watched", "internal/text", "internal/verdict"}},
	{"ops", []string{".", "internal/catalog", "internal/contract", "internal/pace", "internal/verdict"}},
	{"internal/operator", []string{".", "internal/conns", "internal/text", "ops"}},
	{"doctor", []string{".", "internal/ranges", "migrate", "internal/catalog", "internal/engine", "internal/conns", "internal/text"}},
	{"service", []string{".", "internal/ranges", "internal/callback", "consumer", "guard", "job", "migrate", "outbox", "schedule", "internal/catalog", "internal/conns", "internal/contract", "internal/pace", "internal/progress"}},
	// transports
	{"transport/internal/jsonptr", nil},
	{"transport/internal/adapter", []string{".", "transport/internal/jsonptr", "internal/pace"}},
	{"transport/internal/heart", nil},
	{"transport/pawlsqs", []string{".", "internal/callback", "transport/internal/adapter", "transport/internal/heart", "internal/pace"}},
	{"transport/pawlkafka", []string{".", "internal/callback", "transport/internal/adapter", "internal/fault", "internal/pace"}},
	{"transport/pawlnats", []string{".", "internal/callback", "transport/internal/adapter", "internal/fault", "transport/internal/heart", "internal/pace"}},
	{"transport/pawlrabbitmq", []string{".", "internal/callback", "transport/internal/adapter", "internal/fault", "internal/pace"}},
	{"filter/pawlredis", []string{"."}},
	{"transport/webhook", []string{".", "internal/ranges", "internal/callback", "transport/internal/jsonptr", "internal/pace"}},
	{"transport/pawlsqs/sqstest", []string{"internal/pace"}},
	{"transport/pawlsqs/sqstest/conformance", nil},
	{"internal/testbed/patience", nil},
	{"internal/testbed/bounds", []string{".", "internal/testbed/patience"}},
	{"transport/transporttest", []string{".", "internal/testbed/patience", "internal/receipt"}},
	// observers
	{"observe", []string{"."}},
	{"observe/internal/metrics", []string{".", "observe", "ops", "internal/catalog"}},
	{"observe/prompawl", []string{".", "observe", "observe/internal/metrics"}},
	{"observe/otelpawl", []string{".", "consumer", "job", "observe", "observe/internal/metrics"}},
	{"dashboard", []string{".", "internal/callback", "internal/conns", "doctor", "internal/catalog", "ops", "internal/operator", "internal/text", "internal/verdict"}},
	// tests, ours and our users'
	{"internal/testbed/checker", nil}, // shares nothing with the packages that it judges
	{"internal/testbed/surface", nil},
	{"internal/testbed/pictures", nil},
	{"internal/testbed/postgres", nil},
	{"internal/testbed/brokers", nil},
	{"internal/testbed/hatest", nil},
	{"internal/testbed/pgtest", []string{"internal/testbed/postgres"}},
	{"internal/testbed/pgtest/catalogue", nil},
	{"internal/testbed/pgtest/hostile", nil},
	{"internal/testbed/wireproxy", nil},
	{"internal/testbed/fleet", nil},
	{"internal/testbed/provider", nil},
	{"internal/testbed/jobtest", []string{".", "internal/contract", "job"}},
	{"pawltest", []string{".", "command/httpkey", "consumer", "guard", "inbox", "outbox", "transport/webhook", "internal/contract", "internal/testbed/pgtest", "internal/testbed/provider", "job", "migrate", "ops", "schema", "internal/pace", "internal/txn"}},
	{"internal/testbed/counted", []string{".", "consumer", "job", "outbox", "pawltest", "internal/testbed/checker", "internal/fault", "internal/testbed/fleet", "internal/pace", "internal/receipt", "internal/testbed/wireproxy"}},
	// generators
	{"internal/testbed/incident", []string{".", "job", "step", "pawltest"}},
	{"schema/internal/gen/sqlstates", nil},
	{"schema/internal/gen/dist", []string{"migrate"}},
	{"schema/internal/gen/reference", nil},
	{"observe/internal/gen", []string{"observe/internal/metrics"}},
	// the binary
	{"cmd/pawl/internal/broker", []string{".", "transport/pawlsqs", "transport/pawlsqs/sqstest"}},
	{"cmd/pawl/internal/lab", []string{".", "cmd/pawl/internal/broker", "internal/text", "internal/fault", "internal/testbed/fleet", "consumer", "dashboard", "internal/testbed/postgres", "internal/testbed/wireproxy", "job", "migrate", "transport/pawlsqs", "transport/pawlsqs/sqstest"}},
	{"cmd/pawl/internal/demo", []string{".", "cmd/pawl/internal/broker", "internal/testbed/fleet", "step", "consumer", "job", "outbox", "migrate", "internal/testbed/checker", "internal/fault", "internal/testbed/postgres", "internal/testbed/provider", "transport/webhook"}},
	{"cmd/pawl/internal/scaffold", nil},
	{"cmd/pawl/internal/sizing", nil},
	{"cmd/pawl/internal/adopt", []string{"internal/text"}},
	{"cmd/pawl/internal/cli", []string{".", "cmd/pawl/internal/lab", "cmd/pawl/internal/scaffold", "schema", "migrate", "ops", "doctor", "dashboard", "internal/testbed/brokers", "internal/testbed/postgres", "transport/pawlsqs", "transport/pawlsqs/sqstest", "transport/webhook", "cmd/pawl/internal/broker", "cmd/pawl/internal/demo", "cmd/pawl/internal/sizing", "cmd/pawl/internal/adopt", "internal/operator", "internal/text", "internal/verdict"}},
	{"cmd/pawl", []string{"cmd/pawl/internal/cli"}},
	{"cmd/pawl/pawl-brokers", []string{".", "cmd/pawl/internal/broker", "cmd/pawl/internal/cli", "internal/testbed/brokers", "transport/pawlkafka", "transport/pawlnats", "transport/pawlrabbitmq"}},
	// the analyzers: they look at users' code and share nothing with the engine
	{"vet", nil},
	{"vet/cmd/pawl-vet", []string{"vet"}},
	// the proof and the benchmark
	{"proof", nil}, {"proof/rerun", nil},
	{"bench", []string{".", "command", "command/httpkey", "consumer", "guard", "job", "outbox", "ops", "schedule", "migrate", "internal/testbed/postgres"}},
}

// Every import of ours is in the plan, and the plan's entries refer only to entries above them.
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

// The testbed is for tests, users' test helpers, the demo and the benchmark. The engine does not
// import it.
func TestTestbed_IsNoPartOfTheEngine(t *testing.T) {
	t.Parallel()
	mayUse := regexp.MustCompile(`^(internal/testbed|pawltest|transport/transporttest|cmd/pawl|bench)(/|$)`)
	uses := 0
	for _, room := range plan {
		for _, used := range room.uses {
			if !strings.HasPrefix(used, "internal/testbed/") {
				continue
			}
			if uses++; !mayUse.MatchString(room.pkg) {
				t.Errorf("the plan lets %s, a part of the engine, import %s", room.pkg, used)
			}
		}
	}
	if uses < 10 {
		t.Errorf("found only %d imports of the testbed", uses)
	}
}

// The core module requires only pgx and the standard library. Every SDK is in its own module.
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
	mod, err := os.ReadFile("../../../go.mod")
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

// sources returns every Go file that is neither a test nor in a module for tests or examples.
func sources(t *testing.T) (files []source) {
	t.Helper()
	root := os.DirFS("../../..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (name == ".git" || name == "examples" || name == "internal/testbed/browsertest" || name == "internal/testbed/deploytest" || name == "internal/testbed/drivertest" || name == "internal/testbed/migratetest" || name == "internal/testbed/release" || name == "internal/testbed/webhooktest" || path.Base(name) == "testdata") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../../..", name), nil, parser.ImportsOnly)
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

// modules returns the folders with a go.mod, relative to the repository.
func modules(t *testing.T) (dirs []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("../../.."), ".", func(name string, d fs.DirEntry, err error) error {
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
