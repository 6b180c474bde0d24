package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// runnable returns all commands that do something, by their path without "pawl".
func runnable(root *cobra.Command) (all []*cobra.Command) {
	for _, c := range root.Commands() {
		if c.HasSubCommands() {
			all = append(all, runnable(c)...)
		}
		if c.RunE != nil && (!c.HasSubCommands() || c.Annotations[usageAnnotation] != "") {
			all = append(all, c)
		}
	}
	return all
}

// badValues are values that no flag of a type accepts.
var badValues = map[string][]string{
	"int": {"many", "-1"}, "int64": {"many", "-1"}, "uint64": {"many", "-1"}, "uint32": {"many", "-1"}, "float64": {"much", "-1"},
	"duration": {"long", "-1s"}, "bool": {"perhaps"}, "number": {"many", "1.5"}, "time": {"soon"},
}

// With a bad flag, a bad value, a missing or an unexpected argument, every command exits with 2 and
// prints one line with the next step.
func TestUsage_EveryCommandAnswersBadInputWith2(t *testing.T) {
	for _, c := range runnable(newRoot()) {
		_, path, _ := strings.Cut(c.CommandPath(), " ")
		words := strings.Fields(path)
		refused := func(what string, args ...string) {
			t.Helper()
			t.Run(path+" "+what, func(t *testing.T) {
				var stdout, stderr bytes.Buffer
				code := Run(t.Context(), append(append(words[:len(words):len(words)], "--database-url=postgres://u@127.0.0.1:1/d"), args...), &stdout, &stderr)
				line := stderr.String()
				if code != exitUsage || stdout.Len() > 0 || strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, ")\n") {
					t.Errorf("exit %d, want 2 and one line with the next step in parentheses; stdout %q, stderr %q", code, stdout.String(), line)
				}
			})
		}
		refused("--bogus", "--bogus")
		if strings.Contains(c.Use, " ID") {
			args := []string{"abc"}
			for _, name := range []string{"reason=r", "yes"} {
				if flag, _, _ := strings.Cut(name, "="); c.Flags().Lookup(flag) != nil {
					args = append(args, "--"+name)
				}
			}
			refused("abc", args...)
		}
		refused("a b c d", "a", "b", "c", "d")
		if strings.ContainsAny(c.Use, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
			refused("without arguments")
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			values := badValues[f.Value.Type()]
			switch f.Name {
			case "limit":
				values = append(values[:len(values):len(values)], "0", "1001")
			case "skip", "status", "table", "scheme", "format":
				values = append(values[:len(values):len(values)], "luck")
			}
			for _, value := range values {
				refused("--"+f.Name+"="+value, "--"+f.Name+"="+value)
			}
		})
	}
}
