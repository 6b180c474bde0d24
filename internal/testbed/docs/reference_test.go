package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/schema"
	"github.com/pawl-go/pawl/transport/webhook"
)

var (
	function = regexp.MustCompile(`(?ms)^create or replace function pawl_v1\.([a-z]\w*)\((.*?)\)\nreturns(.*?)^\$\$;`)
	view     = regexp.MustCompile(`(?m)^create or replace view pawl_v1\.([a-z]\w*)`)
	argument = regexp.MustCompile(`\bp_\w+`)
	options  = regexp.MustCompile(`_check_options\(p_options, '\{(.*?)\}'\)`)
	result   = regexp.MustCompile(`(?s)^ table \((.*?)\)`)
)

// Every public function and view has a section that names its arguments, options and results.
func TestSQL_EveryFunctionHasASection(t *testing.T) {
	t.Parallel()
	const page = "docs/reference/sql.md"
	functions := function.FindAllStringSubmatch(schema.API(), -1)
	if len(functions) < 10 {
		t.Fatalf("found only %d functions", len(functions))
	}
	var names []string
	for _, f := range functions {
		names = append(names, f[1])
		section := sectionOf(t, page, f[1])
		want := argument.FindAllString(f[2], -1)
		if o := options.FindStringSubmatch(f[3]); o != nil && o[1] != "" {
			for _, name := range strings.Split(o[1], ",") {
				want = append(want, "`"+name+"`")
			}
		}
		if r := result.FindStringSubmatch(f[3]); r != nil {
			want = append(want, "→")
			for _, column := range strings.Split(r[1], ",") {
				want = append(want, strings.TrimSpace(column))
			}
		}
		for _, word := range want {
			if !strings.Contains(section, word) {
				t.Errorf("%s: the section %s does not mention %s", page, f[1], word)
			}
		}
	}
	for _, v := range view.FindAllStringSubmatch(schema.API(), -1) {
		names = append(names, v[1])
		sectionOf(t, page, v[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(read(t, page), -1) {
		if !slices.Contains(names, m[1]) {
			t.Errorf("%s: section %s is about nothing in schema/api", page, m[1])
		}
	}
}

// sectionOf returns the text under a heading, up to the next heading of any level.
func sectionOf(t *testing.T, page, name string) string {
	t.Helper()
	text := "\n" + read(t, page)
	for _, marks := range []string{"\n## ", "\n### "} {
		if _, after, found := strings.Cut(text, marks+name+"\n"); found {
			body, _, _ := strings.Cut(after, "\n#")
			return body
		}
	}
	t.Errorf("%s: no section %s", page, name)
	return ""
}

// The table lists every event with its name and constant.
func TestEvents_AreListed(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/reference/events.md")
	found := 0
	for _, spec := range specs(t, "event.go", token.CONST) {
		c, ok := spec.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(c.Names[0].Name, "Event") {
			continue
		}
		kind, err := strconv.Unquote(c.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		if row := fmt.Sprintf("| `%s` | `%s` |", kind, c.Names[0].Name); !strings.Contains(page, row) {
			t.Errorf("events.md has no row %s", row)
		}
	}
	if rows := strings.Count(page, "| `Event"); found < 10 || rows != found {
		t.Errorf("%d constants, %d rows", found, rows)
	}
}

// The table lists exactly the fault points of the source.
func TestFaults_AreListed(t *testing.T) {
	t.Parallel()
	points := map[string]bool{}
	at := regexp.MustCompile(`fault\.At\("([^"]+)"\)`)
	for _, file := range files(t, ".go") {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "internal/fault/") {
			continue
		}
		for _, m := range at.FindAllStringSubmatch(read(t, file), -1) {
			points[m[1]] = true
		}
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z.]+\\.(?:before|after))` \\|").FindAllStringSubmatch(read(t, "docs/reference/faults.md"), -1) {
		listed[m[1]] = true
	}
	for point := range points {
		if !listed[point] {
			t.Errorf("faults.md has no row for %s", point)
		}
	}
	for point := range listed {
		if !points[point] {
			t.Errorf("faults.md lists %s, which is not in the source", point)
		}
	}
	if len(points) < 5 {
		t.Errorf("found only %d points", len(points))
	}
}

// The guide lists every reason for which a webhook is refused, with its response, and the
// properties of each sender.
func TestWebhooks_ReasonsAndSendersAreListed(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/guides/webhooks.md")
	found := 0
	for _, spec := range specs(t, "transport/webhook/refusal.go", token.CONST) {
		c := spec.(*ast.ValueSpec)
		reason, err := strconv.Unquote(c.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		status := (&webhook.Refusal{Reason: webhook.Reason(reason)}).Status()
		if row := fmt.Sprintf("| `%s` | `%s` | %d |", reason, c.Names[0].Name, status); !strings.Contains(page, row) {
			t.Errorf("webhooks.md has no row %s", row)
		}
	}
	if rows := strings.Count(page, "| `Reason"); found < 10 || rows != found {
		t.Errorf("%d constants, %d rows", found, rows)
	}
	for _, s := range webhook.Senders() {
		volatile := "–"
		if len(s.Volatile) > 0 {
			volatile = "`" + strings.Join(s.Volatile, "`, `") + "`"
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s | %s |", s.Name, hours(s.Retries), days(s.Resends), days(s.Retention), volatile)
		if !strings.Contains(page, row) {
			t.Errorf("webhooks.md has no row %s", row)
		}
		for address := range strings.FieldsSeq(s.Page) {
			if !strings.Contains(page, "("+address+")") {
				t.Errorf("webhooks.md does not link %s", address)
			}
		}
	}
}

func hours(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
}

func days(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

func specs(t *testing.T, file string, kind token.Token) (all []ast.Spec) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range parsed.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == kind {
			all = append(all, d.Specs...)
		}
	}
	return all
}

// Each snippet of the guide on testing is in the example's tests.
func TestTesting_ShowsTheExample(t *testing.T) {
	t.Parallel()
	tests := read(t, "examples/shop/shop_test.go")
	snippets := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(read(t, "docs/guides/testing.md"), -1)
	for _, s := range snippets {
		if !strings.Contains(tests, "\n"+s[1]) {
			t.Errorf("docs/guides/testing.md shows what is not in examples/shop/shop_test.go:\n%s", s[1])
		}
	}
	if len(snippets) < 6 {
		t.Errorf("found only %d snippets", len(snippets))
	}
}

// The code of each section of the guide on database/sql is a file of the recipes without its
// package clause, so it compiles where it is pasted.
func TestDatabaseSQL_ShowsTheRecipes(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/guides/database-sql.md")
	for name, section := range map[string]string{"orders": "One function for messages, jobs and your own transactions",
		"gorm": "GORM", "ent": "ent", "bun": "bun", "sqlx": "sqlx", "sqlc": "sqlc"} {
		_, text, _ := strings.Cut(page, "\n## "+section+"\n")
		text, _, _ = strings.Cut(text, "\n## ")
		var shown []string
		for _, s := range goFence.FindAllStringSubmatch(text, -1) {
			shown = append(shown, s[1])
		}
		if "package recipes\n\n"+strings.Join(shown, "\n") != read(t, "examples/recipes/"+name+".go") {
			t.Errorf("docs/guides/database-sql.md: the code under %s is not examples/recipes/%s.go", section, name)
		}
	}
}

// Every trap has one row. The tests that it names exist, and it names every test that is named
// after it.
func TestTraps_AreAnswered(t *testing.T) {
	t.Parallel()
	const traps = 76
	page := read(t, "docs/reference/traps.md")
	for n := 1; n <= traps; n++ {
		if rows := strings.Count(page, fmt.Sprintf("\n| T%d | ", n)); rows != 1 {
			t.Errorf("T%d has %d rows", n, rows)
		}
	}
	exist := map[string]bool{}
	for _, file := range files(t, "_test.go") {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(read(t, file), -1) {
			exist[m[1]] = true
		}
	}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(page, -1) {
		if !exist[m[1]] {
			t.Errorf("traps.md names %s, which does not exist", m[1])
		}
	}
	for name := range exist {
		if regexp.MustCompile(`^TestT\d+_`).MatchString(name) && !strings.Contains(page, "`"+name+"`") {
			t.Errorf("traps.md does not name %s", name)
		}
	}
	for _, row := range regexp.MustCompile(`(?m)^\| T\d+ \|.*$`).FindAllString(page, -1) {
		if !regexp.MustCompile("[Tt]ested by `Test|cannot occur|[Nn]ot built yet|not prevented|Not tested").MatchString(row) {
			t.Errorf("no answer in %s", row)
		}
	}
}

// Every test that the page on SQS names exists.
func TestSQS_NamesTests(t *testing.T) {
	t.Parallel()
	all := ""
	for _, file := range files(t, "_test.go") {
		all += read(t, file)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(read(t, "docs/reference/sqs.md"), -1)
	for _, m := range named {
		if !strings.Contains(all, "\nfunc "+m[1]+"(") {
			t.Errorf("sqs.md names %s, which does not exist", m[1])
		}
	}
	if len(named) < 40 {
		t.Errorf("found only %d names", len(named))
	}
}

// The README shows the handler of the program that the first tutorial shows whole. A test runs it.
func TestStart_ShowsTheExample(t *testing.T) {
	t.Parallel()
	program := read(t, "examples/consume/main.go")
	consumer := regexp.MustCompile(`(?m)^\t(app\.Consumer\(.*\))$`).FindStringSubmatch(program)
	_, handler, found := strings.Cut(program, "\n// An Order is")
	if consumer == nil || !found {
		t.Fatal("examples/consume/main.go has no consumer, or no type Order")
	}
	if shown := "```go\n" + consumer[1] + "\n\n// An Order is" + handler + "```\n"; !strings.Contains(read(t, "README.md"), shown) {
		t.Errorf("README.md does not show the consumer and the handler of examples/consume/main.go:\n%s", shown)
	}
	if !strings.Contains(read(t, "docs/start.md"), "```go\n"+program+"```\n") {
		t.Error("docs/start.md does not show examples/consume/main.go as it is")
	}
}

// Each tutorial shows the whole program that its test runs.
func TestTutorials_ShowTheirPrograms(t *testing.T) {
	t.Parallel()
	for page, program := range map[string]string{"jobs": "bookings", "calls": "payments", "publish": "shipments"} {
		code := read(t, "examples/tutorial/"+program+"/main.go")
		if !strings.Contains(read(t, "docs/tutorials/"+page+".md"), "```go\n"+code+"```\n") {
			t.Errorf("docs/tutorials/%s.md does not show examples/tutorial/%s/main.go as it is", page, program)
		}
	}
}

// The guide on a service contains the whole example from func main on, in parts, and its tables.
func TestService_ShowsTheExample(t *testing.T) {
	t.Parallel()
	page, _, _ := strings.Cut(read(t, "docs/guides/service.md"), "\n## Test it\n")
	_, code, _ := strings.Cut(read(t, "examples/service/main.go"), "\nfunc main()")
	var shown strings.Builder
	for _, s := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		shown.WriteString(s[1])
	}
	dense := func(text string) []string {
		return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return line == "" })
	}
	want, got := dense("func main()"+code), dense(shown.String())
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			t.Fatalf("docs/guides/service.md and examples/service/main.go differ: %.3q, want %.3q", got[min(i, len(got)):], want[min(i, len(want)):])
		}
	}
	_, tables, _ := strings.Cut(read(t, "examples/service/schema.sql"), "\ncreate table")
	if !strings.Contains(page, "```sql\ncreate table"+tables+"```\n") {
		t.Error("docs/guides/service.md does not show examples/service/schema.sql")
	}
}

// The decisions are numbered without gaps, and the list has every number, also unused ones.
func TestDecisions_AreListed(t *testing.T) {
	t.Parallel()
	const folder = "docs/decisions/"
	list, numbers := read(t, folder+"README.md"), map[string]string{}
	for _, name := range files(t, ".md") {
		if below, is := strings.CutPrefix(name, folder); is && below != "README.md" {
			numbers[below[:4]] = below
		}
	}
	for n := 1; n <= len(numbers)+strings.Count(list, "| not used |"); n++ {
		number := fmt.Sprintf("%04d", n)
		row := fmt.Sprintf("\n| [%s](%s) | ", number, numbers[number])
		if numbers[number] == "" {
			row = "\n| " + number + " | not used |"
		}
		if strings.Count(list, row) != 1 {
			t.Errorf("%sREADME.md has no row %s", folder, row)
		}
	}
}

// The table of modules lists every module of the workspace, and the first rule lists the imports of
// the root package.
func TestArchitecture_NamesTheModules(t *testing.T) {
	t.Parallel()
	page := read(t, "ARCHITECTURE.md")
	modules := regexp.MustCompile(`(?m)^\t\./(\S+)$`).FindAllStringSubmatch(read(t, "go.work"), -1)
	for _, m := range modules {
		if !strings.Contains(page, "`…/"+m[1]+"`") {
			t.Errorf("ARCHITECTURE.md does not name the module %s", m[1])
		}
	}
	if len(modules) < 15 {
		t.Errorf("found only %d modules", len(modules))
	}
	_, rule, _ := strings.Cut(page, "\n1. The root package imports only ")
	rule, _, _ = strings.Cut(rule, ". ")
	listed := regexp.MustCompile("`(internal/\\w+)`").FindAllStringSubmatch(rule, -1)
	imported := map[string]bool{}
	for _, name := range files(t, ".go") {
		if !strings.Contains(name, "/") && !strings.HasSuffix(name, "_test.go") {
			for _, m := range regexp.MustCompile(`"github\.com/pawl-go/pawl/(internal/\w+)"`).FindAllStringSubmatch(read(t, name), -1) {
				imported[m[1]] = true
			}
		}
	}
	for _, m := range listed {
		if !imported[m[1]] {
			t.Errorf("ARCHITECTURE.md says that the root package imports %s", m[1])
		}
		delete(imported, m[1])
	}
	for name := range imported {
		t.Errorf("ARCHITECTURE.md does not say that the root package imports %s", name)
	}
}
