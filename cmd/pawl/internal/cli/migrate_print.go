package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/schema"
)

type printFlags struct {
	format string
	from   int
	dir    string
	force  bool
	roles  bool
}

func newMigratePrint() *cobra.Command {
	var f printFlags
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the migrations for psql, goose, tern or golang-migrate; needs no database",
		Long: `Prints the migrations as files of another tool. They carry Pawl's own version record, so that pawl migrate check works
whoever applied them. Several files go to --dir, or to stdout with a line "-- file: NAME" before each.

The files are numbered by Pawl's versions, from 1. Beside migrations of your own, keep them in a directory and a
version table of their own, or renumber them.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			files, err := f.files(cmd)
			if err != nil {
				return err
			}
			if f.dir == "" {
				return printFiles(cmd, files)
			}
			return f.write(cmd, files)
		},
	}
	cmd.Flags().StringVar(&f.format, "format", string(migrate.Plain), "one of "+formats())
	cmd.Flags().IntVar(&f.from, "from", 0, "leave out this version and those before it: the database has them")
	cmd.Flags().StringVar(&f.dir, "dir", "", "write files to this directory instead of stdout")
	cmd.Flags().BoolVar(&f.force, "force", false, "overwrite files that exist")
	cmd.Flags().BoolVar(&f.roles, "roles", false, "print the script of the roles instead")
	return cmd
}

func formats() string {
	var names []string
	for _, format := range migrate.Formats() {
		names = append(names, string(format))
	}
	return strings.Join(names, ", ")
}

func (f printFlags) files(cmd *cobra.Command) ([]migrate.File, error) {
	if f.force && f.dir == "" {
		return nil, misused(cmd, "--force overwrites files, and stdout is none", "add --dir DIR")
	}
	if f.roles {
		if cmd.Flags().Changed("format") || cmd.Flags().Changed("from") {
			return nil, misused(cmd, "--roles prints one script, without --format and --from", "run: pawl migrate print --roles")
		}
		// One transaction: the path that the script sets ends with it, and psql commits after each statement.
		return []migrate.File{{Name: "pawl_roles.sql", Text: "begin;\n\n" + schema.Roles() + "\ncommit;\n"}}, nil
	}
	if f.from < 0 || f.from >= schema.Newest() {
		return nil, misused(cmd, fmt.Sprintf("--from %d leaves nothing to print: the newest version is %d", f.from, schema.Newest()),
			"pass the version that the database has; see: pawl migrate status")
	}
	files, err := migrate.Files(migrate.Format(f.format), f.from)
	if err != nil {
		return nil, misused(cmd, fmt.Sprintf("unknown format %q", f.format), "pass one of "+formats())
	}
	return files, nil
}

func printFiles(cmd *cobra.Command, files []migrate.File) error {
	out := cmd.OutOrStdout()
	for _, file := range files {
		if len(files) > 1 {
			if _, err := fmt.Fprintf(out, "-- file: %s\n", file.Name); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprint(out, file.Text); err != nil {
			return err
		}
	}
	return nil
}

// write refuses before it writes anything, so that a directory never holds half of a set.
func (f printFlags) write(cmd *cobra.Command, files []migrate.File) error {
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return failed(cmd, err, "choose another --dir")
	}
	for _, file := range files {
		path := filepath.Join(f.dir, file.Name)
		if _, err := os.Lstat(path); !f.force && !errors.Is(err, fs.ErrNotExist) {
			return failed(cmd, fmt.Errorf("%s exists", path), "choose another --dir, or overwrite with --force")
		}
	}
	for _, file := range files {
		path := filepath.Join(f.dir, file.Name)
		if err := os.WriteFile(path, []byte(file.Text), 0o644); err != nil {
			return failed(cmd, err, "make the directory writable, or choose another --dir")
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), path); err != nil {
			return err
		}
	}
	return nil
}
