package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

// addVerbs adds the commands of a noun to its group, except those that the group has already.
func addVerbs(group *cobra.Command, n *operator.Noun) {
	for _, v := range n.Verbs() {
		if !slices.ContainsFunc(group.Commands(), func(c *cobra.Command) bool { return c.Name() == v.Command }) {
			group.AddCommand(newVerb(v))
		}
	}
}

// describe makes the command of a verb, with its help. use lists its arguments.
func describe(group string, v operator.Verb, use string) *cobra.Command {
	help := []string{strings.TrimSpace(v.Effect + " " + v.Noun.More), v.More}
	if i := slices.IndexFunc(v.Seen, isRequired); i >= 0 {
		help = append(help, fmt.Sprintf("--%s is the value that pawl %s printed. If another attempt has started since, nothing changes.",
			v.Seen[i].Flag, os.Expand(v.Noun.Look, strings.ToUpper)))
	}
	cmd := &cobra.Command{Use: v.Command + use + " --reason TEXT", Short: v.Short, Long: wrap(append(help, "Actor and reason are recorded in pawl.audit.")...)}
	for line := range strings.Lines(v.Example) {
		cmd.Example += "  pawl " + group + " " + v.Command + " " + line
	}
	return cmd
}

// isRequired reports whether the command requires the flag.
func isRequired(f operator.Field) bool { return f.Flag != "" && f.Arg != "" }

// wrap breaks paragraphs into lines. A paragraph that begins with a space stays as it is.
func wrap(paragraphs ...string) string {
	const width = 110
	var out []string
	for _, p := range strings.Split(strings.Join(slices.DeleteFunc(paragraphs, func(p string) bool { return p == "" }), "\n\n"), "\n\n") {
		if strings.HasPrefix(p, " ") {
			out = append(out, p)
			continue
		}
		set, at := "", 0
		for _, word := range strings.Fields(p) {
			switch n := len([]rune(word)); {
			case set == "":
				set, at = word, n
			case at+1+n > width:
				set, at = set+"\n"+word, n
			default:
				set, at = set+" "+word, at+1+n
			}
		}
		out = append(out, set)
	}
	return strings.Join(out, "\n\n")
}

type values map[string]string

func (p values) of(name string) string { return p[name] }

// newVerb makes the command of a verb about one thing: arguments and flags, the question, and the
// output.
func newVerb(v operator.Verb) *cobra.Command {
	p := values{}
	var arguments []operator.Field
	use := ""
	for _, f := range v.Fields() {
		if f.Flag == "" && f.Usage() != "" {
			arguments = append(arguments, f)
			use += " " + f.Usage()
		}
	}
	for _, f := range v.Seen {
		if isRequired(f) {
			use += " --" + f.Flag + " " + f.Arg
		}
	}
	cmd := describe(v.Noun.Group, v, use)
	for _, f := range v.Fields() {
		if f.Flag != "" {
			cmd.Flags().Var(&flagValue{f, p}, f.Flag, f.Label)
		}
	}
	cmd.Args = takes(len(arguments))
	c := addChange(cmd, v.Warning != "")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		what := cmd.Name() + " " + v.Noun.What
		for i, f := range arguments {
			if p[f.Name] = args[i]; len(f.Options) > 0 {
				what += " as $" + f.Name
			}
		}
		if err := checkValues(cmd, v, p); err != nil {
			return err
		}
		return c.run(cmd, os.Expand(what, p.of), v.Warning, func(ctx context.Context, conn *pgx.Conn, by ops.By) error {
			r, err := v.Run(ctx, conn, p.of, by)
			switch {
			case isLocked(err):
				return failed(cmd, errors.New(v.Noun.Locked), "ask again when that has ended")
			case err != nil:
				return err
			}
			return printResult(cmd, c, v, p, r, otherName(ctx, conn, v.Noun, p))
		})
	}
	return cmd
}

// checkValues refuses invalid values before it connects.
func checkValues(cmd *cobra.Command, v operator.Verb, p values) error {
	asIn := "as in: " + cmd.UseLine()
	var bad *operator.BadValue
	switch is := errors.As(v.Wrong(p.of, false), &bad); {
	case !is:
	case len(bad.Field.Options) > 0:
		return misused(cmd, fmt.Sprintf("the %s is %s, not %s", bad.Field.Arg, bad.Want, bad.Value), asIn)
	default:
		return misused(cmd, fmt.Sprintf("%s is a number, not %q", bad.Field.Arg, bad.Value), asIn)
	}
	if v.Check != nil {
		if wrong, next := v.Check(p.of); wrong != "" {
			return misused(cmd, wrong, next)
		}
	}
	// The fence must be the one that the person saw, so it is not read here.
	if i := slices.IndexFunc(v.Seen, isRequired); i >= 0 && p[v.Seen[i].Name] == "" {
		return misused(cmd, "the attempt that your verdict is about is missing", "pass --"+v.Seen[i].Flag+", as shown by: "+look(v.Noun, p))
	}
	return nil
}

// look is the command that shows the thing.
func look(n *operator.Noun, p values) string {
	return "pawl " + os.Expand(n.Look, func(name string) string { return text.ShellWord(p[name]) })
}

// printResult prints what has changed. other is a name that may be meant instead, or "".
func printResult(cmd *cobra.Command, c *change, v operator.Verb, p values, r ops.Result, other string) (err error) {
	done := r.Changed() || r.Outcome == ops.Unchanged
	switch {
	case *c.json:
		err = printJSON(cmd.OutOrStdout(), r)
	case done:
		_, err = fmt.Fprintln(cmd.OutOrStdout(), c.note()+v.Says(p.of, r))
	}
	if done && other != "" {
		progress(cmd)(text.Visible(other))
	}
	if err != nil || done {
		return err
	}
	m, known := whyNot[v.Noun][r.Outcome]
	if !known {
		m.why = v.Noun.What + ": $outcome"
	}
	next := r.Hint
	if m.next == "look" {
		next = "see: " + look(v.Noun, p)
	} else if m.next != "" {
		next = m.next
	}
	return failed(cmd, errors.New(operator.Line(m.why, p.of, r)), cmp.Or(other, next))
}

// otherName says which queue or consumer may be meant instead, or "". The change is made already,
// so an error of the search is no failure.
func otherName(ctx context.Context, conn *pgx.Conn, n *operator.Noun, p values) (other string) {
	switch n {
	case operator.Queues:
		other, _ = jobsElsewhere(ctx, conn, p["name"])
	case operator.Lanes:
		other, _ = jobsElsewhere(ctx, conn, p["queue"])
	case operator.Deliveries, operator.SequenceGates:
		other = notAConsumer(p["consumer"])
	}
	return other
}

// whyNot holds the reasons why nothing changed, with the next step. An empty step means the
// result's hint; "look" means the command that shows the thing.
var whyNot = map[*operator.Noun]map[ops.Outcome]miss{
	operator.Lanes: {
		ops.Idle:    {"nothing blocks lane $name", "see: pawl lanes list --blocked"},
		ops.Refused: {"job $job has the turn and is $was", ""},
		ops.Absent:  {"there is no lane $name in queue $queue", ""},
	},
	operator.Schedules: {ops.Absent: {"there is no schedule $name", "see: pawl schedules list"}},
	operator.Deliveries: {
		ops.Moved:   {"delivery $key of consumer $consumer has taken effect since you looked, or once more", "look"},
		ops.Refused: {"job $job owns the delivery and is $was", ""},
		ops.Absent:  {"consumer $consumer remembers no delivery $key", "the id is the key that its sender chose: see the producer"},
	},
	operator.SequenceGates: {
		ops.Moved: {"gate $resource of consumer $consumer has moved since you looked", "look"},
		ops.Idle:  {"nothing is held at gate $resource of consumer $consumer", "see: pawl sequence-gates list --held"},
	},
	operator.Commands: {
		ops.Moved:   {"command $key of scope $scope has been tried again since you looked", "look"},
		ops.Refused: {"command $key of scope $scope is not unknown", "look"},
		ops.Absent:  {"there is no command $key in scope $scope", "see: pawl commands list --stale"},
	},
	operator.Steps: {
		ops.Moved:   {"step $step has been called again since you looked", ""},
		ops.Refused: {"step $step is $was", ""},
		ops.Early:   {"a call of step $step may still be sent in the next $wait", ""},
		ops.Absent:  {"there is no step $step of $key in scope $scope", "see: pawl steps list"},
	},
}

// A flagValue is the flag of a field.
type flagValue struct {
	field  operator.Field
	values values
}

func (f *flagValue) String() string { return f.values[f.field.Name] }

// Type is the name of the value in the help.
func (f *flagValue) Type() string {
	switch f.field.Type {
	case operator.Number, operator.ID:
		return "number"
	case operator.Time:
		return "time"
	}
	return "string"
}

// Set accepts valid values. An id of 0 means none.
func (f *flagValue) Set(given string) error {
	if f.field.Type == operator.ID && given == "0" {
		given = ""
	} else if !f.field.Fits(given) {
		return errors.New("must be " + f.field.Want())
	}
	f.values[f.field.Name] = given
	return nil
}
