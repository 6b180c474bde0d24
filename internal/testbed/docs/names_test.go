package docs_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A place is a page, a comment, or another text that names things.
type place struct {
	name string // of the file
	text string
	page bool
}

// A kind is a kind of names.
type kind struct {
	name    string
	pattern *regexp.Regexp
	where   where
	exists  func(w *world, p place, m []string) bool // m is a match of the pattern
}

type where int

const (
	everywhere where = iota
	pages
	comments
)

// kinds are the kinds of names in pages and comments. The first group of a match is the name.
var kinds = []kind{
	{"file", regexp.MustCompile(`(?:^|[^\w/.:$~@%\\<-])(?:\./)?((?:[\w.*{}-]+/)*[\w.*{}-]*\w\.(?:go|md|sql|csv|jsonl))\b(?:#([\w-]+)|(\.\w))?`), everywhere,
		func(w *world, p place, m []string) bool {
			found := w.find(p.name, m[1])
			return m[3] != "" || len(found) > 0 && (m[2] == "" || slices.ContainsFunc(found, func(name string) bool { return w.anchored[name][m[2]] }))
		}},
	{"path", regexp.MustCompile(`(?:^|[^\w/.:$~@%\\<=-])(?:\./)?((?:internal|cmd|docs|transport|examples|observe|proof|schema|deploy|\.ci|bench)/[\w.*{}/-]*[\w*}])`), everywhere,
		func(w *world, p place, m []string) bool { return len(w.find(p.name, m[1])) > 0 || w.declared(m[1]) }},
	{"package", regexp.MustCompile("\\b[Pp]ackages?\\s+\\[?`([a-z][\\w/]*)`"), everywhere, (*world).packaged},
	{"package", regexp.MustCompile(`\b[Pp]ackage\s+\[([a-z][\w/]*)\]`), everywhere, (*world).packaged},
	{"package", regexp.MustCompile(`(?:(?:^|\W)(?:of|in|by|with|for|to|from|like|is|and|as|see|that|let)\s+|[^\w\s]\s+|^)[Pp]ackage\s+([a-z][a-z0-9]*(?:/[a-z0-9]+)*)\b`), everywhere, (*world).packaged},
	{"function or view", regexp.MustCompile(`\bpawl_v1\.(\w+)`), everywhere, func(w *world, _ place, m []string) bool { return w.contract[m[1]] }},
	{"table", regexp.MustCompile(`(?:^|[^\w./])pawl\.([a-z]\w*(?:\.\w+)*)`), everywhere,
		func(w *world, p place, m []string) bool {
			name, _, _ := strings.Cut(m[1], ".")
			return w.tables[name] || w.used["pawl."+m[1]] || len(w.find(p.name, "pawl."+m[1])) > 0
		}},
	{"metric, alert or role", regexp.MustCompile(`(?:^|[^\w./])(pawl_[a-z_]*[a-z]|Pawl[A-Z]\w+)\b`), everywhere,
		func(w *world, _ place, m []string) bool {
			return w.roles[m[1]] || w.metrics[m[1]] || w.metrics[regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(m[1], "")]
		}},
	{"variable", regexp.MustCompile(`\b(PAWL_[A-Z_]+)\b`), everywhere, func(w *world, _ place, m []string) bool { return w.variables[m[1]] }},
	{"test", regexp.MustCompile(`\b((?:Test|Fuzz|Benchmark)[A-Z0-9]\w*)`), everywhere, func(w *world, _ place, m []string) bool { return w.begins(m[1]) }},
	{"test", regexp.MustCompile(`\s-(?:run|bench)[ =]'?\^?([A-Za-z]\w+)`), everywhere,
		func(w *world, _ place, m []string) bool {
			for test := range w.tests {
				if strings.Contains(test, m[1]) {
					return true
				}
			}
			return false
		}},
	{"flag", regexp.MustCompile(`\s-([a-z]+\.[a-z]+)\b`), everywhere, func(w *world, _ place, m []string) bool { return w.used[m[1]] }},
	{"SQLSTATE", regexp.MustCompile(`\b(P4\d{3})\b`), everywhere,
		func(w *world, p place, m []string) bool {
			return w.codes[m[1]] || strings.HasPrefix(p.name, "docs/decisions/")
		}},
	{"target", regexp.MustCompile("(?m)(?:`|^\\$ )make ([a-z-]+)"), everywhere, func(w *world, _ place, m []string) bool { return w.targets[m[1]] }},
	{"identifier", regexp.MustCompile(`(?:^|[^\w./])([a-z][a-z0-9]*\.[A-Z]\w*(?:\.[A-Z]\w*)*)`), everywhere,
		func(w *world, p place, m []string) bool { return w.selects(p, m[1]) }},
	// A godoc link.
	{"identifier", regexp.MustCompile(`\[\*?((?:[\w/.-]+/)?\w+(?:\.\w+){0,2})\](?:[^(:\w]|$)`), comments,
		func(w *world, p place, m []string) bool {
			return path.Ext(p.name) != ".go" || w.linked(path.Dir(p.name), m[1])
		}},
	{"member", regexp.MustCompile("`(?:[^`\n]*[^\\w.`])?([A-Z]\\w*[a-z]\\w*\\.[A-Z]\\w+)[^`\n]*`"), pages, (*world).member},
	{"name", regexp.MustCompile("`([A-Z]\\w*[a-z]\\w*)`"), pages, (*world).known},
	{"word", regexp.MustCompile("`([a-z]+(?:_[a-z]+)+)`"), pages, (*world).known},
}

// excepted are names of other systems that our code does not use, names in the output of programs,
// and names that a decision removed. Each has its reason.
var excepted = map[string]string{
	"ApproximateNumberOfMessagesVisible": "a metric of CloudWatch",
	"Deduplicator":                       "of Watermill",
	"MaxConnLifetime":                    "of pgxpool",
	"ReportBatchItemFailures":            "of AWS Lambda",
	"WithPublicEndpoint":                 "of otelhttp",
	"cache_statement":                    "of pgx",
	"describe_exec":                      "of pgx",
	"pool_ping_timeout":                  "of pgxpool",
	"num_pending":                        "of NATS",
	"messages_ready":                     "of RabbitMQ",
	"rabbitmq_consistent_hash_exchange":  "a plugin of RabbitMQ",
	"query_timeout":                      "of PgBouncer",
	"idle_transaction_timeout":           "of PgBouncer",
	"pg_repack":                          "an extension of PostgreSQL",
	"response.Content":                   "what pawltest.RequestTest may ignore",
	"response.Location":                  "the same",
	"pg_upgrade":                         "a program of PostgreSQL",
	"autovacuum_max_workers":             "a setting of PostgreSQL",
	"client_connection_check_interval":   "a setting of PostgreSQL",
	"log_parameter_max_length":           "a setting of PostgreSQL",
	"log_parameter_max_length_on_error":  "a setting of PostgreSQL",
	"remote_apply":                       "a value of synchronous_commit",
	"remote_write":                       "a value of synchronous_commit",
	"wal_level":                          "a setting of PostgreSQL",
	"ClientHandler.Handle":               "of smithy-go",
	"Batch.BeginTx":                      "of pgx",
	"pg_snapshot_xmin":                   "of PostgreSQL",
	"track_functions":                    "a setting of PostgreSQL",
	"idempotency_keys":                   "a table that people have",
	"drain_queue":                        "of Oban",
	"args_octets":                        "renamed by decision 0042, which says so",
	"xxx":                                "no test, on purpose",
	"OnError":                            "ended by decision 0041, which says so",
	"runs.jsonl":                         "written by the command that names it",
	"proof/flakes.jsonl":                 "written when a test is run again",
}

var (
	address = regexp.MustCompile(`https?://\S+`)
	ours    = regexp.MustCompile(`https://github\.com/pawl-go/pawl/(?:blob|tree)/main/`)
	past    = regexp.MustCompile(`(?m)^\| before \| after \|\n(?:\|.*\n)+`)
	// elsewhere matches the first column of the page about other systems' names.
	elsewhere = regexp.MustCompile(`(?m)^\|[^|]*\|`)
	// inside matches pages for contributors, which also name internal packages.
	inside = regexp.MustCompile(`^[A-Z]+\.md$|^docs/decisions/`)
)

// missing returns the names in a place that do not exist.
func (w *world) missing(p place) (all []string) {
	text := p.text
	switch {
	case p.name == "docs/reference/coming-from.md":
		text = elsewhere.ReplaceAllString(text, "|")
	case strings.HasPrefix(p.name, "docs/decisions/"):
		// Names before the decision.
		text = past.ReplaceAllString(fence.ReplaceAllString(text, ""), "")
	}
	text = address.ReplaceAllString(ours.ReplaceAllString(text, " "), " ")
	for _, k := range kinds {
		if k.where == pages && !p.page || k.where == comments && p.page {
			continue
		}
		for _, m := range k.pattern.FindAllStringSubmatch(text, -1) {
			if excepted[m[1]] == "" && !k.exists(w, p, m) && !own(p, m[1]) {
				all = append(all, fmt.Sprintf("%s: there is no %s %s", p.name, k.name, strings.Trim(m[0], " \n`\"'(,;:")))
			}
		}
	}
	return all
}

// own reports whether an example on the page declares the name, or uses it in SQL, Python or
// JavaScript.
func own(p place, name string) bool {
	if !p.page {
		return false
	}
	name, _, _ = strings.Cut(name, ".")
	for _, example := range fence.FindAllString(p.text, -1) {
		pattern := `\b` + name + `\b`
		if strings.HasPrefix(example, "```go") {
			pattern = `(?:func|type|var|const) ` + name + `\b|\b` + name + `(?:, \w+)* :=|[(,] ?` + name + ` [*\w]`
		}
		if regexp.MustCompile(pattern).MatchString(example) {
			return true
		}
	}
	return false
}

var (
	moduleTag   = regexp.MustCompile(`/v\d[\d.]*$`)
	placeholder = regexp.MustCompile(`NNNN_name|\b(?:[A-Z]{2,}|N)\b|\{[^}]*\}`)
)

// find returns the files and folders that a name in a place may mean. It looks below the root,
// beside the place, and for any path that ends in the name.
func (w *world) find(at, name string) (found []string) {
	name = placeholder.ReplaceAllString(moduleTag.ReplaceAllString(name, ""), "*")
	if strings.HasPrefix(name, ".") && !strings.HasPrefix(name, ".ci") {
		name = "*" + strings.TrimLeft(name, "./") // .down.sql
	}
	for _, exact := range []string{path.Clean(name), path.Join(path.Dir(at), name)} {
		if w.paths[exact] {
			return []string{exact}
		}
	}
	depth := strings.Count(name, "/") + 1
	for below := range w.paths {
		parts := strings.Split(below, "/")
		if ok, _ := path.Match(name, strings.Join(parts[max(0, len(parts)-depth):], "/")); ok {
			found = append(found, below)
		}
	}
	return found
}

// declared reports whether a name is a folder of Go code followed by an identifier, such as
// internal/txn.Begin.
func (w *world) declared(name string) bool {
	folder, identifier, found := strings.Cut(path.Base(name), ".")
	return found && w.own[path.Join(path.Dir(name), folder)].names[identifier]
}

// packaged reports whether a package has this name: one of ours, or one that the code at the place
// imports.
func (w *world) packaged(p place, m []string) bool {
	return len(w.packages[path.Base(m[1])]) > 0 || w.imports(p, path.Base(m[1]))
}

// imports reports whether the folder of a comment imports a package with that name from another
// module.
func (w *world) imports(p place, name string) bool {
	return !p.page && w.own[path.Dir(p.name)].imported[name]
}

// selects reports whether pkg.Name or pkg.Name.Member exists, or pkg is not one of our packages.
func (w *world) selects(p place, selector string) bool {
	pkg, name, _ := strings.Cut(selector, ".")
	if w.api[pkg][name] || w.imports(p, pkg) {
		return true
	}
	if p.page && !inside.MatchString(p.name) && w.api[pkg] == nil {
		return true // an internal package, which the page's readers do not know
	}
	for _, folder := range w.packages[pkg] {
		if w.own[folder].has(name) {
			return true
		}
	}
	return len(w.packages[pkg]) == 0
}

// has reports whether a package declares "Config" or "Config.Name". If a type embeds another, all
// its members count as declared.
func (m members) has(name string) bool {
	first, _, member := strings.Cut(name, ".")
	parts := strings.SplitN(name, ".", 3)
	return m.names[name] || member && m.names[first] && m.embeds[first] || len(parts) == 3 && m.has(parts[0]+"."+parts[1])
}

// linked reports whether a godoc link in a folder resolves.
func (w *world) linked(folder, name string) bool {
	if at := strings.LastIndex(name, "/"); at >= 0 {
		importPath, rest, _ := strings.Cut(name[at:], ".")
		below, is := strings.CutPrefix(name[:at]+importPath, module)
		below = path.Clean("./" + below)
		return !is || w.paths[below] && (rest == "" || w.own[below].has(rest))
	}
	m := w.own[folder]
	first, rest, two := strings.Cut(name, ".")
	external, imported := m.imported[first]
	switch {
	case len(name) == 1, m.has(name), external, imported && !two: // [T] is a type parameter
		return true
	}
	return imported && slices.ContainsFunc(w.packages[first], func(folder string) bool { return w.own[folder].has(rest) })
}

// member reports whether a type of this name has the member.
func (w *world) member(_ place, m []string) bool {
	for _, api := range w.api {
		if api[m[1]] {
			return true
		}
	}
	for _, own := range w.own {
		if own.has(m[1]) {
			return true
		}
	}
	return false
}

// known reports whether our Go code or SQL contains the word.
func (w *world) known(_ place, m []string) bool {
	return w.used[m[1]] || w.metrics[m[1]] || w.tests[m[1]]
}

// begins reports whether a test's name begins with this one, as the -run flag of go test matches
// it.
func (w *world) begins(name string) bool {
	for test := range w.tests {
		if strings.HasPrefix(test, name) {
			return true
		}
	}
	return false
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// marked matches files whose comments begin with -- or #.
var (
	marked = regexp.MustCompile(`\.(?:sql|ya?ml|service|py)$|(?:^|/)(?:Makefile|Containerfile|\.ci/\w+|proof/(?:brokers|browser|guides|versions))$`)
	// lead matches files whose texts may refer to a page.
	lead    = regexp.MustCompile(`\.(?:go|yaml|json|html|sql|csv|service)$`)
	toPages = regexp.MustCompile(`\bdocs/[\w./-]+\.md(?:#[\w-]+)?`)
	remark  = regexp.MustCompile(`(?m)(?:--|#) .*$`)
)

// places returns all comments, and all pages except the changelog, which names removed things.
func places(t *testing.T, w *world) (all []place) {
	t.Helper()
	for _, name := range files(t, ".md") {
		if name != "CHANGELOG.md" {
			all = append(all, place{name, read(t, name), true})
		}
	}
	for _, name := range files(t, ".go") {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if generated.MatchString(read(t, name)) {
			continue
		}
		for _, group := range parsed.Comments {
			all = append(all, place{name, group.Text(), false})
		}
	}
	for name := range w.paths {
		if strings.Contains(name, "/testdata/") {
			continue // also folders that are named like files
		}
		if lead.MatchString(name) && !strings.HasPrefix(name, "internal/testbed/docs/") {
			if led := toPages.FindAllString(read(t, name), -1); led != nil {
				all = append(all, place{name: name, text: strings.Join(led, " ")})
			}
		}
		if marked.MatchString(name) && name != "schema/dist/pawl.sql" {
			text := strings.Join(remark.FindAllString(read(t, name), -1), "\n")
			all = append(all, place{name: name, text: text})
		}
	}
	return all
}

// The names in pages and comments exist.
func TestNames_Exist(t *testing.T) {
	t.Parallel()
	w, pages := existing(t), 0
	for _, p := range places(t, w) {
		for _, m := range w.missing(p) {
			t.Error(m)
		}
		if p.page {
			pages++
		}
	}
	if pages < 100 {
		t.Errorf("found only %d pages", pages)
	}
}
