package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
)

// Exit codes, as documented in the help.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// lineLimit bounds an error line, in bytes. A cause and a step fit, a dump does not.
const lineLimit = 1000

type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// misused reports an invalid command line, with the next step.
func misused(cmd *cobra.Command, what, next string) error {
	return &usageError{failed(cmd, errors.New(what), next)}
}

// failed reports a failure, with the next step.
func failed(cmd *cobra.Command, why error, next string) error {
	return &pawl.Error{Op: operation(cmd), Err: why, Hint: next}
}

// operation is the command's name in errors and metrics: "migrate.up".
func operation(cmd *cobra.Command) string {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	return strings.ReplaceAll(path, " ", ".")
}

// exit prints err as one line, if it is not nil, and returns the exit code.
func exit(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(w, "pawl: %s\n", text.Visible(oneLine(err.Error())))
	var usage *usageError
	if errors.As(err, &usage) || errors.Is(err, pawl.ErrArgumentInvalid) {
		return exitUsage
	}
	return exitFailed
}

func oneLine(text string) string {
	line := strings.Join(strings.Fields(text), " ")
	if len(line) > lineLimit {
		line = strings.ToValidUTF8(line[:lineLimit], "") + "..."
	}
	return line
}

// flagError reports an error of the flag parser. An unknown command is the better explanation,
// because the flags behind it belong to that command.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return knownCommand(cmd, words)
	}
	next := "see: " + cmd.CommandPath() + " --help"
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		return misused(cmd, wrongValue(value), next)
	}
	return misused(cmd, err.Error(), next)
}

// wrongValue describes the values that a flag accepts. The parser's own message has no example.
func wrongValue(e *pflag.InvalidValueError) string {
	is := "does not fit"
	switch e.GetFlag().Value.Type() {
	case "duration":
		is = "is not a duration such as 90s, 15m or 24h"
	case "int", "int64":
		is = "is not a whole number"
	case "float64":
		is = "is not a number"
	case "bool":
		is = "is neither true nor false"
	case "topic", "queue", "number", "time":
		is = e.Unwrap().Error()
	}
	return fmt.Sprintf("the value %q of --%s %s", e.GetValue(), e.GetFlag().Name, is)
}

// knownCommand refuses any argument of a group, because it can only be an unknown command.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	what := fmt.Sprintf("unknown command %q", args[0])
	if cmd.SuggestionsMinimumDistance == 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		what += fmt.Sprintf(", did you mean %q?", near[0])
	}
	return misused(cmd, what, "see: "+cmd.CommandPath()+" --help")
}

// noArgs refuses arguments of a command that takes flags only.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return misused(cmd, fmt.Sprintf("unexpected argument %q", args[0]), "see: "+cmd.CommandPath()+" --help")
}

// takes refuses any other number of arguments than n.
func takes(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return misused(cmd, fmt.Sprintf("it takes %s, not %d", text.Plural(n, "argument", "arguments"), len(args)), "as in: "+cmd.UseLine())
	}
}
