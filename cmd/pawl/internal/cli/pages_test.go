package cli

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	fenced      = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```")
	spanned     = regexp.MustCompile("`([^`\n]+)`")
	called      = regexp.MustCompile("(?:^|[\\s=(`])pawl ")
	other       = regexp.MustCompile("[`;|]")
	plain       = regexp.MustCompile(`^[a-z][a-z-]*$`)
	placeholder = regexp.MustCompile(`^[A-Z%]`)
	dashed      = regexp.MustCompile(`^--([a-z][a-z-]*)`)
)

// unknown returns the commands and flags of a line that do not exist. In prose a word after pawl
// need not be a command.
func unknown(root *cobra.Command, line string, prose bool) (all []string) {
	for _, call := range called.Split(line, -1)[1:] {
		at, ends := root, false
	words:
		for n, text := range strings.Fields(other.Split(call, 2)[0]) {
			if ends {
				break
			}
			word := strings.TrimRight(text, ",.:)")
			text, ends = word, prose && word != text
			flag := dashed.FindStringSubmatch(text)
			switch {
			case n == 0 && !strings.HasPrefix(call, word), at.HasSubCommands() && placeholder.MatchString(text):
				break words
			case text == "--", text == "&&", text == "#", strings.HasPrefix(text, ">"):
				break words // the rest is not pawl's
			case flag != nil && at.Flags().Lookup(flag[1]) == nil && at.InheritedFlags().Lookup(flag[1]) == nil && flag[1] != "help":
				all = append(all, at.CommandPath()+" --"+flag[1])
			case flag == nil && at.HasSubCommands() && plain.MatchString(text):
				i := slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool { return c.Name() == text || c.HasAlias(text) })
				switch {
				case i >= 0:
					at = at.Commands()[i]
				case prose && n == 0:
					break words
				case !prose && at.Annotations[usageAnnotation] == "":
					all = append(all, at.CommandPath()+" "+text)
					break words
				}
			}
		}
	}
	return all
}

// code returns the text set as code on a page, line by line.
func code(page string) (lines []string) {
	for _, m := range fenced.FindAllStringSubmatch(page, -1) {
		if m[1] != "go" {
			lines = append(lines, strings.Split(strings.ReplaceAll(m[2], "\\\n", " "), "\n")...)
		}
	}
	for _, m := range spanned.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		lines = append(lines, m[1])
	}
	return lines
}

// said returns the comments and strings of a Go file.
func said(source []byte) (texts []string) {
	var s scanner.Scanner
	file := token.NewFileSet()
	s.Init(file.AddFile("", -1, len(source)), source, nil, scanner.ScanComments)
	for {
		_, tok, text := s.Scan()
		switch tok {
		case token.EOF:
			return texts
		case token.COMMENT:
			texts = append(texts, strings.TrimPrefix(text, "//"))
		case token.STRING:
			if text, err := strconv.Unquote(text); err == nil {
				texts = append(texts, strings.Split(text, "\n")...)
			}
		}
	}
}

// others are flags of other programs that pages mention without the program.
var others = []string{"apart", "atomic", "create", "discard", "ignore", "recover", "seconds"}

// flagsOf returns the flags of a command and of its subcommands.
func flagsOf(cmd *cobra.Command) map[string]bool {
	all := map[string]bool{"help": true}
	add := func(f *pflag.Flag) { all[f.Name] = true }
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	for _, c := range cmd.Commands() {
		maps.Copy(all, flagsOf(c))
	}
	return all
}

// The commands and flags that pages, comments and texts mention exist.
func TestPages_NameCommandsThatExist(t *testing.T) {
	t.Parallel()
	root, lines := newRoot(), 0
	root.InitDefaultCompletionCmd()
	flags := flagsOf(root)
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		switch ext := filepath.Ext(name); {
		case err == nil && d.Name() == "node_modules":
			return filepath.SkipDir
		case err != nil || d.IsDir() || d.Name() == "CHANGELOG.md":
			return err
		case ext == ".md":
			text, err := os.ReadFile(name)
			for _, line := range code(string(text)) {
				if flag := dashed.FindStringSubmatch(line); flag != nil && !flags[flag[1]] && !slices.Contains(others, flag[1]) {
					t.Errorf("%s: no command has --%s", name, flag[1])
				}
				lines += strings.Count(line, "pawl ")
				for _, what := range unknown(root, line, false) {
					t.Errorf("%s: there is no %s: %s", name, what, line)
				}
			}
			return err
		case ext == ".go" && !strings.HasSuffix(name, "_test.go"):
			text, err := os.ReadFile(name)
			for _, line := range said(text) {
				for _, what := range unknown(root, line, true) {
					t.Errorf("%s: there is no %s: %s", name, what, line)
				}
			}
			return err
		case slices.Contains([]string{".sql", ".yaml", ".service", ".sh", ".html"}, ext):
			text, err := os.ReadFile(name)
			for line := range strings.Lines(string(text)) {
				for _, what := range unknown(root, line, true) {
					t.Errorf("%s: there is no %s: %s", name, what, line)
				}
			}
			return err
		}
		return nil
	})
	if err != nil || lines < 200 {
		t.Errorf("%d lines: %v", lines, err)
	}
}

// A command or flag that does not exist is found.
func TestPages_PlantedCommandsAreFound(t *testing.T) {
	t.Parallel()
	root := newRoot()
	for line, found := range map[string]bool{
		"pawl dev sqs --listen 127.0.0.1:0": false, "pawl dev sqs --port 1": true, "pawl dev sns": true, "pawl job list": true,
		"$ pawl jobs list --queue q --status dead_letter": false, "pawl jobs list --queues q": true, "pawl dlq retries 1": true,
		"pawl dev postgres --dir ./pgdata -- go run . --any": false, "pawl demo --watch": false, "pawl demo --look": true,
	} {
		if got := unknown(root, line, false); (len(got) > 0) != found {
			t.Errorf("%s: %v", line, got)
		}
	}
}

// The tables on pages have the columns that commands print.
func TestPages_ShowTheColumns(t *testing.T) {
	t.Parallel()
	literal := regexp.MustCompile(`(\[\]string\{|append\(l\.heading, )("[A-Z][A-Z ]*"(?:, "[A-Z ]*")*)[})]`)
	printed, rest := []string{}, []string{}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
			columns := strings.ReplaceAll(strings.ReplaceAll(m[2], `"`, ""), ", ", "  ")
			if strings.HasPrefix(m[1], "append") {
				rest = append(rest, columns)
				continue
			}
			printed = append(printed, strings.TrimRight(columns, " "))
		}
	}
	heading := regexp.MustCompile(`^[A-Z][A-Z ]+(?:  +[A-Z][A-Z ]*)+$`)
	found := 0
	err = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".md" || d.Name() == "CHANGELOG.md" {
			return err
		}
		text, err := os.ReadFile(name)
		for _, line := range code(string(text)) {
			if !heading.MatchString(line) {
				continue
			}
			found++
			columns := regexp.MustCompile(`  +`).ReplaceAllString(line, "  ")
			shown := slices.Contains(printed, columns)
			for _, tail := range rest {
				head, cut := strings.CutSuffix(columns, "  "+tail)
				shown = shown || cut && slices.Contains(printed, head)
			}
			if !shown {
				t.Errorf("%s: no command prints the columns %s", name, line)
			}
		}
		return err
	})
	if err != nil || found < 8 {
		t.Errorf("%d tables: %v", found, err)
	}
}
