package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const schemaDir = "../../.."

func loaded(t *testing.T) *contract {
	t.Helper()
	c, err := load(schemaDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A fault of each kind in a header is found.
func TestHeaders_PlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	for _, planted := range []struct{ name, old, new, want string }{
		{"inbox_claim", "inbox_claim claims", "It claims", "no header"},
		{"inbox_claim", "  behind", "  ahead", "outcome behind is not"},
		{"inbox_claim", "  behind", "  behind, ahead", "outcome ahead, which"},
		{"inbox_claim", "  result_ref", "  reference", "option result_ref is not"},
		{"inbox_claim", "  result_ref", "  result_ref, reference", "option reference, which"},
		{"inbox_claim", "  P4002", "  P4003", "error P4002 is not"},
		{"purge_count", "  unreported", "  reported", "option unreported is not"},
		{"command_succeed", "response_headers", "headers", "option response_headers is not"},
		{"job_finish_many", "  locked", "  busy", "outcome locked is not"},
		{"job_enqueue", "  enqueued", "  queued", "outcome enqueued is not"},
		{"job_retry", "  refused", "  denied", "outcome refused is not"},
		{"job_claim", "(1 s to 12 h,", "(1 s to 24 h,", "option lease_ms is 1000 to 43200000"},
		{"job_enqueue", "a year, default 0)", "a year, default 1)", "option retry_in_ms is 0 to 31536000000"},
		{"job_claim", "Errors:", "Outcomes:", "no such column"},
	} {
		c := loaded(t)
		e := c.named[planted.name]
		header := strings.Join(e.header, "\n")
		if !strings.Contains(header, planted.old) {
			t.Fatalf("%s has no %q", planted.name, planted.old)
		}
		e.header = strings.Split(strings.Replace(header, planted.old, planted.new, 1), "\n")
		if found := strings.Join(c.faults(e), "; "); !strings.Contains(found, planted.want) {
			t.Errorf("%s with %q for %q: %q, want %q", planted.name, planted.new, planted.old, found, planted.want)
		}
	}
}

// The template gives each function and view one place.
func TestPage_PlantedGapsAreFound(t *testing.T) {
	t.Parallel()
	c := loaded(t)
	for _, broken := range []string{
		strings.Replace(template, "{{inbox_claim}}", "", 1),
		strings.Replace(template, "{{inbox_claim}}", "{{inbox_claim}}\n\n{{inbox_claim}}", 1),
		strings.Replace(template, "{{inbox_claim}}", "{{inbox_claim}}\n\n{{inbox_claimed}}", 1),
		strings.Replace(template, "{{inbox_claim}}", "{{inbox_claim}}\n\n{{_lane_of}}", 1),
	} {
		if _, err := page(c, broken); err == nil {
			t.Error("a template with a gap, a repetition or a wrong name was accepted")
		}
	}
}

// A comment at the beginning of a line is outside of the functions: script.Hash does not count it.
func TestBodies_HaveNoCommentThatTheHashIgnores(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(schemaDir, "api", "*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range strings.Split(string(text), "$$") {
			if i%2 == 1 && strings.Contains(part, "\n--") {
				t.Errorf("%s: a comment in a body begins its line", filepath.Base(file))
			}
		}
	}
}

// The page is what the generator writes.
func TestPage_IsCurrent(t *testing.T) {
	t.Parallel()
	want, err := page(loaded(t), template)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(schemaDir, "../docs/reference/sql.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/reference/sql.md is stale: run make generate")
	}
}

// Each public function and view has a header, which lists exactly its outcomes and options, and the
// errors that it raises itself.
func TestHeaders_AreComplete(t *testing.T) {
	t.Parallel()
	c, public := loaded(t), 0
	for _, e := range c.all {
		if !e.public() {
			continue
		}
		public++
		for _, f := range c.faults(e) {
			t.Errorf("%s: %s", e.name, f)
		}
	}
	if public < 100 {
		t.Errorf("only %d functions and views", public)
	}
}

var (
	// known matches the list of options that a function accepts.
	known  = regexp.MustCompile(`p_options,\s*'\{([\w,\s]*)\}'\)`)
	raised = regexp.MustCompile(`errcode = '(\w{5})'`)
	called = regexp.MustCompile(`pawl_v1\.(_\w+)\(`)
)

// faults returns the errors of a header.
func (c *contract) faults(e *entry) (faults []string) {
	if len(e.header) == 0 || !strings.HasPrefix(e.header[0], e.name+" ") {
		return []string{"has no header that begins with its name"}
	}
	if e.view {
		return nil
	}
	blocks := parse(e.header)
	miss := func(what string, has, lists []string) {
		for _, name := range has {
			if !slices.Contains(lists, name) {
				faults = append(faults, what+" "+name+" is not in the header")
			}
		}
	}
	accepted := c.accepted(e)
	miss("option", accepted, names(blocks, "Options"))
	for _, name := range names(blocks, "Options") {
		if !slices.Contains(accepted, name) {
			faults = append(faults, "the header lists option "+name+", which it does not accept")
		}
	}
	faults = append(faults, c.wrongBounds(e, table(blocks, "Options"))...)
	outcomes := names(blocks, "Outcomes")
	if slices.Contains(e.columns, "outcome text") {
		miss("outcome", c.returned(e), outcomes)
		all := c.words(e, map[string]bool{})
		for _, name := range outcomes {
			if !all[name] {
				faults = append(faults, "the header lists outcome "+name+", which it does not return")
			}
		}
	} else if outcomes != nil {
		faults = append(faults, "the header lists outcomes, and it has no such column")
	}
	var codes []string
	for _, m := range raised.FindAllStringSubmatch(e.body, -1) {
		codes = append(codes, m[1])
	}
	miss("error", codes, names(blocks, "Errors"))
	return faults
}

// names returns the names in the tables with this label.
func names(blocks []block, label string) (all []string) {
	for _, r := range table(blocks, label) {
		all = append(all, r.names...)
	}
	return all
}

var (
	bounded = regexp.MustCompile(`_(?:int|ms)_option\(p_options, '(\w+)', (null|\d+), (\d+), (\d+)\)`)
	amount  = regexp.MustCompile(`^(a|[\d,]+) ?(ms|s|min|h|days|years?)?$`)
	unit    = map[string]int64{"": 1, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "days": 86_400_000, "year": 31_536_000_000, "years": 31_536_000_000}
)

// wrongBounds returns the options whose bounds or default are not those that the header states.
func (c *contract) wrongBounds(e *entry, rows []row) (faults []string) {
	text := e.body
	for _, helper := range c.helpers(e) {
		text += helper.body
	}
	for _, m := range bounded.FindAllStringSubmatch(text, -1) {
		for _, r := range rows {
			low, high, stated := strings.Cut(r.values, " to ")
			if !slices.Contains(r.names, m[1]) || !stated {
				continue
			}
			// A function may give a helper another default.
			if given := regexp.MustCompile(`'\{"` + m[1] + `": (\d+)`).FindStringSubmatch(e.body); given != nil {
				m[2] = given[1]
			}
			if number(low) != m[3] || number(high) != m[4] || m[2] != "null" && number(r.preset) != m[2] {
				faults = append(faults, fmt.Sprintf("option %s is %s to %s, default %s; the header says %s, %s", m[1], m[3], m[4], m[2], r.values, r.preset))
			}
		}
	}
	return faults
}

// number returns the digits of an amount, in milliseconds if it has a unit.
func number(text string) string {
	m := amount.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	n, _ := strconv.ParseInt(strings.ReplaceAll(strings.Replace(m[1], "a", "1", 1), ",", ""), 10, 64)
	return strconv.FormatInt(n*unit[m[2]], 10)
}

// accepted returns the options that a function, or a helper that it calls, checks for.
func (c *contract) accepted(e *entry) (options []string) {
	bodies := e.body
	for _, helper := range c.helpers(e) {
		bodies += helper.body
	}
	for _, m := range known.FindAllStringSubmatch(bodies, -1) {
		options = append(options, parts(m[1])...)
	}
	slices.Sort(options)
	return slices.Compact(options)
}

// helpers returns the internal functions that a function calls.
func (c *contract) helpers(e *entry) (all []*entry) {
	seen := map[string]bool{}
	for _, m := range called.FindAllStringSubmatch(e.body, -1) {
		if !seen[m[1]] && m[1] != e.name && c.named[m[1]] != nil {
			all = append(all, c.named[m[1]])
		}
		seen[m[1]] = true
	}
	return all
}

// answering are the helpers whose words are outcomes of their callers.
var answering = []string{"_refusal", "_command_reopen", "_command_standing", "_holding", "_locked_or_stale"}

// impossible are words of a helper that a caller's arguments exclude.
var impossible = map[string]string{"job_finish_many": "held", "lane_finish": "held"}

// returned returns the outcomes that a function's text, or that of an answering helper, returns.
func (c *contract) returned(e *entry) (outcomes []string) {
	outcomes = e.answers(max(0, slices.Index(e.columns, "outcome text")))
	for _, helper := range c.helpers(e) {
		if slices.Contains(answering, helper.name) {
			outcomes = append(outcomes, c.returned(helper)...)
		}
	}
	slices.Sort(outcomes)
	return slices.DeleteFunc(slices.Compact(outcomes), func(word string) bool { return impossible[e.name] == word })
}

var (
	returning = regexp.MustCompile(`(?s)\b(?:return query|return)\s+(.*?);`)
	assigned  = regexp.MustCompile(`(?s)\b(\w+) :=\s*(.*?);`)
	aliased   = regexp.MustCompile(`(?s)(case\b.*?\bend|'\w+') as (\w+)`)
	compared  = regexp.MustCompile(`(?:\bwhen|[=>?,]|\bin \() *'[^']*'`)
	variable  = regexp.MustCompile(`^(?:\w+\.)?(\w+)$`)
)

// answers returns the words that the column'th expression of each returned row can be.
func (e *entry) answers(column int) (outcomes []string) {
	values := map[string]string{} // of variables and columns
	for _, m := range assigned.FindAllStringSubmatch(e.body, -1) {
		values[m[1]] += " " + m[2]
	}
	for _, m := range aliased.FindAllStringSubmatch(e.body, -1) {
		values[m[2]] += " " + m[1]
	}
	for _, m := range returning.FindAllStringSubmatch(e.body, -1) {
		for _, list := range selected(m[1]) {
			if column >= len(list) {
				continue
			}
			expression := list[column]
			if v := variable.FindStringSubmatch(expression); expression == "next" {
				expression = values["outcome"]
			} else if v != nil {
				expression = values[v[1]]
			}
			for _, w := range word.FindAllStringSubmatch(compared.ReplaceAllString(expression, ""), -1) {
				outcomes = append(outcomes, w[1])
			}
		}
	}
	return outcomes
}

// selected returns the lists of the selects of a statement that are not in parentheses.
func selected(statement string) (lists [][]string) {
	open := strings.TrimSpace(flat(statement))
	for _, part := range regexp.MustCompile(`\bunion all\b`).Split(open, -1) {
		_, list, found := strings.Cut(part, "select ")
		if !found {
			lists = append(lists, parts(part)) // an expression
			continue
		}
		list, _, _ = strings.Cut(list, " from ")
		lists = append(lists, parts(list))
	}
	return lists
}

// flat joins the words of a text by single spaces.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

var word = regexp.MustCompile(`'([a-z_]+)'`)

// words returns all words in quotes in the text of a function and of those that it calls.
func (c *contract) words(e *entry, seen map[string]bool) map[string]bool {
	all := map[string]bool{}
	seen[e.name] = true
	for _, m := range word.FindAllStringSubmatch(e.body, -1) {
		all[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`pawl_v1\.(\w+)\(`).FindAllStringSubmatch(e.body, -1) {
		if other := c.named[m[1]]; other != nil && !seen[m[1]] {
			maps.Copy(all, c.words(other, seen))
		}
	}
	return all
}
