package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/cmd/pawl/internal/demo"
)

var update = flag.Bool("update", false, "write docs/images/demo.svg and the commands of docs/reference/cli.md")

// top is the root of the repository.
const top = "../../../.."

// written compares a file of the repository with its text, or writes it with -update.
func written(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join(top, name)
	if *update {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if is, err := os.ReadFile(name); err != nil || string(is) != text {
		t.Errorf("%s is not up to date (%v): run go test ./cmd/pawl/internal/cli -run Written -update", name, err)
	}
}

// docs/images/demo.svg shows the end of a run of pawl demo. testdata/demo.json is its report:
//
//	go run ./cmd/pawl demo --json > cmd/pawl/internal/cli/testdata/demo.json
func TestWritten_DemoIsARealReport(t *testing.T) {
	t.Parallel()
	recorded, err := os.ReadFile("testdata/demo.json")
	if err != nil {
		t.Fatal(err)
	}
	var report demo.Report
	strict := json.NewDecoder(bytes.NewReader(recorded))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&report); err != nil {
		t.Fatal(err)
	}
	var again, printed bytes.Buffer
	if err := printJSON(&again, report); err != nil || again.String() != string(recorded) {
		t.Errorf("the report of today's demo has other fields (%v):\n%s", err, &again)
	}
	if !report.OK() || len(report.KilledAt) != report.Kills {
		t.Errorf("the recorded run is not one to show: %s", recorded)
	}
	if err := printReport(&printed, report); err != nil {
		t.Fatal(err)
	}
	title := fmt.Sprintf("The end of pawl demo: %d orders sent, %d deliveries, %d effects, %d workers killed, %d doubled, %d lost",
		report.Intents, report.Deliveries, report.Effects, report.Kills, report.Doubled, report.Lost)
	written(t, "docs/images/demo.svg", terminal(title, "go run ./cmd/pawl demo", printed.String()))
	readme, err := os.ReadFile(filepath.Join(top, "README.md"))
	if picture := "![" + title + "](docs/images/demo.svg)"; err != nil || !strings.Contains(string(readme), picture) {
		t.Errorf("README.md does not have %s (%v)", picture, err)
	}
}

// terminal draws a command and its output as an SVG. It has no script and is readable on light and
// dark pages. Its desc has the whole text, for screen readers.
func terminal(title, command, output string) string {
	const line, left, column = 19, 16, 8.2 // px: height of a line, margin, width of a character
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	wide := 0
	for _, l := range lines {
		wide = max(wide, len([]rune(l)))
	}
	width, height := int(2*left+column*float64(wide)), line*(len(lines)+1)+2*left
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img" aria-labelledby="title desc">
<title id="title">%s</title>
<desc id="desc">%s</desc>
<style>
.back { fill: #f6f8fa; stroke: #d1d9e0 } text { fill: #1f2328; font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; white-space: pre }
.faint { fill: #59636e } .good { fill: #1a7f37; font-weight: 600 }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117; stroke: #3d444d } text { fill: #e6edf3 } .faint { fill: #9198a1 } .good { fill: #3fb950 } }
</style>
<rect class="back" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>
`, width, height, html.EscapeString(title), html.EscapeString(strings.Join(lines, "\n")), width-1, height-1)
	draw := func(n int, class, text string) {
		fmt.Fprintf(&b, `<text class="%s" xml:space="preserve" x="%d" y="%d">%s</text>`+"\n", class, left, left+line*n+13, html.EscapeString(text))
	}
	draw(0, "faint", "$ "+command)
	for i, l := range lines {
		switch {
		case l == "":
		case i == 0 || i == len(lines)-1:
			draw(i+1, "faint", l)
		case strings.HasSuffix(l, "  ok"):
			draw(i+1, "good", l)
		default:
			draw(i+1, "", l)
		}
	}
	return b.String() + "</svg>\n"
}

const (
	begins = "<!-- written by go test ./cmd/pawl/internal/cli -run Written -update -->\n"
	ends   = "<!-- end -->\n"
)

// docs/reference/cli.md lists each command with the line that its help shows.
func TestWritten_EveryCommandIsListed(t *testing.T) {
	t.Parallel()
	const page = "docs/reference/cli.md"
	text, err := os.ReadFile(filepath.Join(top, page))
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(text), begins)
	_, after, ended := strings.Cut(rest, ends)
	if !begun || !ended {
		t.Fatalf("%s lacks the lines %q and %q", page, begins, ends)
	}
	root := newRoot()
	var list strings.Builder
	list.WriteString("\n| command | purpose |\n|---|---|\n")
	all := listed(root)
	for _, c := range all {
		fmt.Fprintf(&list, "| `%s` | %s |\n", c.CommandPath(), strings.ReplaceAll(c.Short, "|", "\\|"))
	}
	list.WriteString("\n")
	written(t, page, before+begins+list.String()+ends+after)
	if len(all) < 60 {
		t.Errorf("found only %d commands", len(all))
	}
}

// listed returns the visible commands that do something, in the order of their paths.
func listed(root *cobra.Command) []*cobra.Command {
	all := slices.DeleteFunc(runnable(root), func(c *cobra.Command) bool { return c.Hidden || c.Short == "" })
	slices.SortFunc(all, func(a, b *cobra.Command) int { return strings.Compare(a.CommandPath(), b.CommandPath()) })
	return all
}
