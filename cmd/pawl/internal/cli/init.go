package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/cmd/pawl/internal/scaffold"
)

type initFlags struct {
	module, source string
	noTidy         bool
}

func newInit() *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write the smallest service that runs, with a test, into an empty directory",
		Long: `Writes a program that takes orders over signed webhooks and stores each once: go.mod, main.go, main_test.go, README.md and .gitignore. DIR
is made if it is missing; the default is the current directory. A directory that holds anything but .git is refused. Then it runs go mod tidy
there, which fetches the modules.

From an empty directory to a running consumer:

  pawl init
  ` + runLine + `

The program uses packages service, consumer and transport/webhook; replace the webhook by a queue, add jobs and schedules in main.go.`,
		Example: `  pawl init orders --module example.com/orders
  pawl init orders --source ../pawl            # build against the sources of Pawl in ../pawl`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	cmd.Flags().StringVar(&f.module, "module", "", "path of the module (default example.com/ and the name of the directory)")
	cmd.Flags().StringVar(&f.source, "source", "", "directory with the sources of Pawl, used in place of a released version")
	cmd.Flags().BoolVar(&f.noTidy, "no-tidy", false, "do not run go mod tidy")
	return cmd
}

func (f initFlags) run(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return misused(cmd, fmt.Sprintf("it takes one directory, not %d", len(args)), "as in: pawl init orders")
	}
	dir, err := filepath.Abs(strings.Join(args, ""))
	if err != nil {
		return failed(cmd, err, "pass the directory, as in: pawl init orders")
	}
	p, err := f.project(cmd, dir)
	if err != nil {
		return err
	}
	written, err := p.Write(dir)
	switch {
	case errors.Is(err, scaffold.ErrNotEmpty):
		return failed(cmd, fmt.Errorf("%s: %w", dir, err), "choose another directory, as in: pawl init orders")
	case err != nil:
		return failed(cmd, err, "make the directory writable, or choose another one")
	}
	for _, path := range written {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), path); err != nil {
			return err
		}
	}
	say := progress(cmd)
	if f.noTidy {
		say("next, in " + dir + ":")
		say("  go mod tidy")
	} else {
		say("running go mod tidy")
		if err := tidy(cmd.Context(), dir); err != nil {
			return failed(cmd, err, "the files are written; fix that, then run in "+dir+": go mod tidy")
		}
		say("next, in " + dir + ":")
	}
	say("  " + runLine)
	return nil
}

// runLine starts the program that init wrote.
const runLine = "PAWL_WEBHOOK_SECRET=for-trying-it-out pawl dev postgres --dir ./pgdata -- go run ."

// tidy downloads the modules that the module in dir requires.
func tidy(ctx context.Context, dir string) error {
	tidy := exec.CommandContext(ctx, "go", "mod", "tidy")
	tidy.Dir, tidy.Env = dir, append(os.Environ(), "PWD="+dir)
	if out, err := tidy.CombinedOutput(); err != nil {
		return fmt.Errorf("go mod tidy: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

// project sets the files' parameters, with the module versions that this binary was built from.
func (f initFlags) project(cmd *cobra.Command, dir string) (p scaffold.Project, err error) {
	p = scaffold.Project{Module: f.module, Version: versionOf("github.com/pawl-go/pawl"), Pgx: versionOf("github.com/jackc/pgx/v5"), Go: "1.25.0"}
	p.Module = cmp.Or(p.Module, "example.com/"+notInPaths.ReplaceAllString(strings.ToLower(filepath.Base(dir)), ""))
	if !scaffold.ValidModule(p.Module) {
		return p, misused(cmd, fmt.Sprintf("the module path %q cannot be used", p.Module), "pass --module, as in --module example.com/orders")
	}
	switch {
	case f.source != "":
		if p.Source, err = filepath.Abs(f.source); err != nil {
			return p, failed(cmd, err, "pass the directory with the sources of Pawl")
		}
		text, err := os.ReadFile(filepath.Join(p.Source, "go.mod"))
		if err != nil || !strings.HasPrefix(string(text), "module github.com/pawl-go/pawl\n") {
			return p, misused(cmd, f.source+" does not hold the sources of Pawl", "pass the directory with the go.mod of github.com/pawl-go/pawl")
		}
		p.Version = "v0.0.0"
	case p.Version == "":
		return p, misused(cmd, "this build of pawl has no released version", "pass --source DIR with a clone of https://github.com/pawl-go/pawl")
	}
	return p, nil
}

var notInPaths = regexp.MustCompile(`[^a-z0-9._-]`)

// versionOf returns the version of a module in this binary, or "" if it was built from a directory.
func versionOf(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == module && m.Replace == nil && m.Version != "" && m.Version != "(devel)" && m.Version != "v0.0.0" {
			return m.Version
		}
	}
	return ""
}
