package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	start  int
	times  bool
}

func newMigratePrint() *cobra.Command {
	var f printFlags
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the migrations for psql, goose, tern or golang-migrate; needs no database",
		Long: `Prints the migrations as files for another tool. They carry Pawl's own version record, so pawl migrate check works with every tool.
Several files go to --dir, or to stdout with a line "-- file: NAME" before each.

The files are numbered by Pawl's versions, from 1. Among migrations of your own, number them with --start N, where N is one more than
your last number, or with --timestamps, which uses the present time. Tern's numbers have no gaps, so it takes --start only. Print once
and keep the files: with other numbers your tool would apply them again.`,
		Example: `  pawl migrate print > pawl.sql
  pawl migrate print --format golang-migrate --start 42 --dir ./migrations
  pawl migrate print --format goose --timestamps --dir ./migrations`,
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
	cmd.Flags().IntVar(&f.start, "start", 0, "number the files from N on, for a directory with migrations of your own")
	cmd.Flags().BoolVar(&f.times, "timestamps", false, "number the files by the time, as 20060102150405 in UTC")
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
		return nil, misused(cmd, "--force overwrites files, and stdout is not a file", "add --dir DIR")
	}
	if f.roles {
		if cmd.Flags().Changed("format") || cmd.Flags().Changed("from") || cmd.Flags().Changed("start") || f.times {
			return nil, misused(cmd, "--roles prints one script, without --format, --from, --start and --timestamps", "run: pawl migrate print --roles")
		}
		// The script sets search_path for its transaction only, and psql commits after each
		// statement. So it needs begin and commit.
		return []migrate.File{{Name: "pawl_roles.sql", Text: "begin;\n\n" + schema.Roles() + "\ncommit;\n"}}, nil
	}
	if f.from < 0 || f.from >= schema.Newest() {
		return nil, misused(cmd, fmt.Sprintf("--from %d leaves nothing to print: the newest version is %d", f.from, schema.Newest()),
			"pass the version that the database has; see: pawl migrate status")
	}
	if !slices.Contains(migrate.Formats(), migrate.Format(f.format)) {
		return nil, misused(cmd, fmt.Sprintf("unknown format %q", f.format), "pass one of "+formats())
	}
	numbers, err := f.numbers(cmd)
	if err != nil {
		return nil, err
	}
	files, err := migrate.Files(migrate.Format(f.format), f.from, numbers)
	if err != nil {
		return nil, misused(cmd, fmt.Sprintf("--start %d is too large", f.start), "pass one more than the last number of your own migrations")
	}
	return files, nil
}

// numbers reads --start and --timestamps.
func (f printFlags) numbers(cmd *cobra.Command) (n migrate.Numbering, err error) {
	started := cmd.Flags().Changed("start")
	switch {
	case started && f.times:
		return n, misused(cmd, "--start and --timestamps are two ways to number the files", "pass one of them")
	case started && f.start < 1:
		return n, misused(cmd, fmt.Sprintf("--start %d is not a file number", f.start), "pass one more than the last number of your own migrations")
	case (started || f.times) && f.format == string(migrate.Plain):
		return n, misused(cmd, "the format plain is one script without a number", "add --format goose, tern or golang-migrate, or leave out --start and --timestamps")
	case f.times && f.format == string(migrate.Tern):
		return n, misused(cmd, "tern numbers migrations without gaps, so --timestamps does not go with it", "pass --start N, where N is one more than your last number")
	case f.times:
		n.At = time.Now()
	}
	n.Start = f.start
	return n, nil
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

// write checks all files before it writes one, so that it never writes half of a set.
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
