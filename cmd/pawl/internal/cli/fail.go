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

// Exit codes, as the help text documents them.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// lineLimit bounds an error line, in bytes: enough for a cause and a step, too short for a dump.
const lineLimit = 1000

// A usageError is a command line that cannot be run as it stands.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// misused says what is wrong with the command line, and the next step.
func misused(cmd *cobra.Command, what, next string) error {
	return &usageError{failed(cmd, errors.New(what), next)}
}

// failed says what did not work, and the next step.
func failed(cmd *cobra.Command, why error, next string) error {
	return &pawl.Error{Op: operation(cmd), Err: why, Hint: next}
}

// operation names a command as metrics and errors do: "migrate.up".
func operation(cmd *cobra.Command) string {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	return strings.ReplaceAll(path, " ", ".")
}

// report prints err, if there is one, as one line and returns the exit code.
func report(w io.Writer, err error) int {
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

// flagError is given what the flag parser refused. A word that is no command is the better explanation, since the
// flags behind it belong to a command that was not found.
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

// wrongValue says what the value of a flag has to be; the parser's words name no example.
func wrongValue(e *pflag.InvalidValueError) string {
	is := "does not fit"
	switch e.GetFlag().Value.Type() {
	case "duration":
		is = "is no duration such as 90s, 15m or 24h"
	case "int", "int64":
		is = "is no whole number"
	case "float64":
		is = "is no number"
	case "bool":
		is = "is neither true nor false"
	case "topic", "queue", "number", "time":
		is = e.Unwrap().Error()
	}
	return fmt.Sprintf("the value %q of --%s %s", e.GetValue(), e.GetFlag().Name, is)
}

// knownCommand refuses any argument of a group: it can only be a command that does not exist.
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
