package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// argued lists the sentences that break a rule for a reason: the file, the beginning of the
// sentence and the reason. An entry that excuses nothing fails the test.
var argued = []struct{ file, sentence, reason string }{
	{"internal/testbed/postgres/namespace_linux.go", "nobody is the user id", "nobody is the name of a user"},
	{"internal/testbed/postgres/namespace_linux.go", "mapToNobody starts", "nobody is the name of a user"},
}

// retired lists words that once were private terms of this project, and what to write instead.
var retired = map[string]string{
	"bedside": "presence connection", "sleepers": "idle producers", "soiled": "session changed",
	"untold": "not reported", "goes round": "runs its loop",
}

const (
	maxColumns = 100 // of a comment line; a tab counts as 4
	maxCode    = 140 // of a line of code in a comment
	maxWords   = 30  // of a sentence
)

// TestProse holds the rules for comments and pages that a program can check.
func TestProse(t *testing.T) {
	t.Parallel()
	used := make([]bool, len(argued))
	for _, file := range slices.Concat(files(t, ".go"), files(t, ".sql"), files(t, ".md")) {
		text := read(t, file)
		if exempt(file) || generatedCode.MatchString(text) {
			continue
		}
		for _, o := range offences(file, text) {
			at := slices.IndexFunc(argued, func(e struct{ file, sentence, reason string }) bool {
				return e.file == file && strings.HasPrefix(o.sentence, e.sentence)
			})
			if at >= 0 {
				used[at] = true
				continue
			}
			t.Errorf("%s:%d: %s", file, o.line, o.rule)
		}
	}
	for i, e := range argued {
		if !used[i] {
			t.Errorf("argued: nothing to excuse in %s: %q", e.file, e.sentence)
		}
	}
	if len(argued) >= 30 {
		t.Errorf("%d exceptions: rewrite some of them", len(argued))
	}
}

// generatedCode is the mark of generated Go code: https://go.dev/s/generatedcode.
var generatedCode = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// exempt reports whether a file is generated or recorded.
func exempt(file string) bool {
	if strings.HasSuffix(file, "_gen.go") || strings.Contains(file, "/testdata/") {
		return true
	}
	return slices.ContainsFunc([]string{"docs/api/", "schema/dist/", "bench/results/"}, func(dir string) bool { return strings.HasPrefix(file, dir) })
}

// An offence is a rule that a sentence or a line breaks.
type offence struct {
	line           int
	sentence, rule string
}

// A paragraph is running text and the line where it begins.
type paragraph struct {
	line int
	text string
}

func offences(file, text string) (all []offence) {
	var paragraphs []paragraph
	switch path.Ext(file) {
	case ".go":
		paragraphs = goParagraphs(text)
		all = wide(text, goComments(text))
	case ".sql":
		lines := markedLines(text, "--")
		paragraphs = paragraphsOf(lines)
		all = wide(text, lines)
	default:
		paragraphs = pageParagraphs(text)
	}
	for _, p := range paragraphs {
		for _, s := range sentences(p.text) {
			for _, rule := range broken(s) {
				all = append(all, offence{p.line, s, fmt.Sprintf("%s: %.100s", rule, s)})
			}
		}
	}
	return all
}

var (
	indefinite = regexp.MustCompile(`(?i)\b(somebody|nobody|anybody|whoever|whatever|whichever)\b`)
	relative   = regexp.MustCompile(`^(Who|What|Whom|Whose)\b`)
	sentence   = regexp.MustCompile(`[.!?:;]["')\]]*\s+`)
	codeSpan   = regexp.MustCompile("`[^`]*`|\"\\w+\"") // or a value in quotes
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// broken names the rules that a sentence breaks.
func broken(s string) (rules []string) {
	if word := indefinite.FindString(s); word != "" && word != s { // a cell of one word is a value
		rules = append(rules, fmt.Sprintf("%q is no subject or object: name the component or the reader", word))
	}
	if relative.MatchString(s) && !strings.HasSuffix(strings.TrimRight(s, `"')`), "?") {
		rules = append(rules, "begins with a relative clause: begin with the subject")
	}
	if n := len(strings.Fields(s)); n > maxWords {
		rules = append(rules, fmt.Sprintf("%d words: split it", n))
	}
	for word, instead := range retired {
		if regexp.MustCompile(`(?i)\b` + word + `\b`).MatchString(s) {
			rules = append(rules, fmt.Sprintf("%q is retired: write %q", word, instead))
		}
	}
	return rules
}

// sentences splits running text. A code span counts as one word.
func sentences(text string) (all []string) {
	text = codeSpan.ReplaceAllString(linkText.ReplaceAllString(text, "$1"), "code")
	from := 0
	for _, end := range sentence.FindAllStringIndex(text, -1) {
		all = append(all, strings.TrimSpace(text[from:end[1]]))
		from = end[1]
	}
	if rest := strings.TrimSpace(text[from:]); rest != "" {
		all = append(all, rest)
	}
	return all
}

// A commentLine is one line of a comment: the text behind its mark.
type commentLine struct {
	line int
	text string
}

// wide returns the comment lines that are too wide. It skips directives and lines with a URL.
func wide(text string, lines []commentLine) (all []offence) {
	source := strings.Split(text, "\n")
	for _, c := range lines {
		most := maxColumns
		if strings.HasPrefix(c.text, "\t") {
			most = maxCode
		}
		l := strings.ReplaceAll(source[c.line-1], "\t", "    ")
		if n := len([]rune(l)); n > most && !strings.Contains(l, "://") && !directive.MatchString(c.text) {
			all = append(all, offence{c.line, strings.TrimSpace(c.text), fmt.Sprintf("%d columns: %.60s", n, strings.TrimSpace(c.text))})
		}
	}
	return all
}

// directive is a comment for a tool, such as //go:build and //nolint.
var directive = regexp.MustCompile(`^[a-z]+(:|\b)\S`)

// output begins a comment that the go command compares with an example's output.
var output = regexp.MustCompile(`(?i)^//\s*(unordered )?output:`)

func goComments(text string) (all []commentLine) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, parser.ParseComments)
	if err != nil {
		return nil
	}
	for _, group := range file.Comments {
		if output.MatchString(group.List[0].Text) {
			continue
		}
		for _, c := range group.List {
			all = append(all, commentLine{set.Position(c.Pos()).Line, strings.TrimPrefix(c.Text, "//")})
		}
	}
	return all
}

// goParagraphs returns the paragraphs of a Go file's comments.
func goParagraphs(text string) (all []paragraph) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, parser.ParseComments)
	if err != nil {
		return nil
	}
	for _, group := range file.Comments {
		if !output.MatchString(group.List[0].Text) {
			all = append(all, paragraphsOf(linesOf(set, group))...)
		}
	}
	return all
}

func linesOf(set *token.FileSet, group *ast.CommentGroup) (lines []commentLine) {
	for _, c := range group.List {
		lines = append(lines, commentLine{set.Position(c.Pos()).Line, strings.TrimPrefix(c.Text, "//")})
	}
	return lines
}

// markedLines returns the comment lines of a text in which mark begins a comment.
func markedLines(text, mark string) (all []commentLine) {
	for i, l := range strings.Split(text, "\n") {
		if rest, is := strings.CutPrefix(strings.TrimSpace(l), mark); is {
			all = append(all, commentLine{i + 1, rest})
		}
	}
	return all
}

// paragraphsOf joins lines that follow each other. Blank lines, list items and indented blocks
// divide them. Indented blocks are figures and code.
func paragraphsOf(lines []commentLine) (all []paragraph) {
	last := -1
	for _, l := range lines {
		body := strings.TrimSpace(l.text)
		indented := strings.HasPrefix(l.text, "\t") || strings.HasPrefix(l.text, "   ")
		switch {
		case body == "" || indented || l.text[0] != ' ':
			last = -1
			continue
		case last == l.line-1 && !item.MatchString(body):
			all[len(all)-1].text += " " + body
		default:
			all = append(all, paragraph{l.line, body})
		}
		last = l.line
	}
	return all
}

var item = regexp.MustCompile(`^(-|\*|\d+\.|#+) `)

// pageParagraphs returns the running text of a page without its code. Each cell of a table is a
// paragraph.
func pageParagraphs(text string) (all []paragraph) {
	var open, code bool
	for i, l := range strings.Split(text, "\n") {
		body := strings.TrimSpace(l)
		if strings.HasPrefix(body, "```") {
			open, code = false, !code
			continue
		}
		switch {
		case code || body == "":
			open = false
		case strings.HasPrefix(body, "|"):
			for _, cell := range strings.Split(codeSpan.ReplaceAllString(body, "code"), "|") {
				all = append(all, paragraph{i + 1, strings.TrimSpace(cell)})
			}
			open = false
		case open && !item.MatchString(body):
			all[len(all)-1].text += " " + body
		default:
			all, open = append(all, paragraph{i + 1, body}), !strings.HasPrefix(body, "#")
		}
	}
	return all
}

// TestProse_PlantedOffencesAreFound breaks each rule once in each kind of file.
func TestProse_PlantedOffencesAreFound(t *testing.T) {
	t.Parallel()
	long := "The worker " + strings.Repeat("waits and ", 15) + "ends."
	for rule, text := range map[string]string{
		"Somebody holds the row.":           "no subject",
		"The row is held by nobody else.":   "no subject",
		"What is claimed stays claimed.":    "relative clause",
		"Good. Who has it ends it.":         "relative clause",
		long:                                "words: split it",
		"The presence. It goes round again": "retired",
	} {
		for file, source := range map[string]string{
			"a.go":  "package a\n\n// F does it.\n//\n// " + rule + "\nfunc F() {}\n",
			"b.go":  "package a\n\nfunc f() {\n\tf() // " + rule + "\n}\n",
			"a.sql": "-- It is a table.\n--\n-- " + rule + "\nselect 1;\n",
			"a.md":  "# Title\n\nText.\n\n" + rule + "\n",
			"b.md":  "| a | b |\n|---|---|\n| c | " + rule + " |\n",
		} {
			if all := offences(file, source); len(all) == 0 || !strings.Contains(all[len(all)-1].rule, text) {
				t.Errorf("%s: %v for %q, want %q", file, all, rule, text)
			}
		}
	}
	wideLine := "// F " + strings.Repeat("x", maxColumns)
	if all := offences("a.go", "package a\n\n"+wideLine+"\nfunc F() {}\n"); len(all) != 1 {
		t.Errorf("a wide comment: %v", all)
	}
	for _, good := range []string{"What is a lane?", "See https://example.org. It ends.", "Run `somebody` by hand."} {
		if all := offences("a.md", good+"\n"); len(all) != 0 {
			t.Errorf("%q: %v", good, all)
		}
	}
}
