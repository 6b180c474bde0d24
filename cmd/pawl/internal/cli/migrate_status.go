package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/schema"
)

// A status is the output of `pawl migrate status --json`. Fields are only added, never removed.
type status struct {
	Installed int             `json:"installed"` // 0: no schema
	Newest    int             `json:"newest"`    // of this build
	MinClient int             `json:"min_client"`
	AppliedAt *time.Time      `json:"applied_at"` // of the installed version; null without one
	OK        bool            `json:"ok"`         // result of `pawl migrate check`
	Problem   string          `json:"problem,omitempty"`
	Versions  []versionStatus `json:"versions"`
}

type versionStatus struct {
	Number  int    `json:"number"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
}

func newMigrateStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List the versions and which of them the database has",
		Args:  noArgs,
	}
	return report[status]{anySchema: true, read: readStatus, print: printStatus}.on(cmd)
}

func readStatus(ctx context.Context, conn *pgx.Conn, _ []string) (status, error) {
	installed, err := migrate.Status(ctx, conn)
	if err != nil {
		return status{}, err
	}
	s := status{Installed: installed.Version, Newest: schema.Newest(), MinClient: installed.MinClient, OK: true}
	if installed.Version > 0 {
		s.AppliedAt = &installed.AppliedAt
	}
	for _, v := range schema.Versions() {
		s.Versions = append(s.Versions, versionStatus{v.Number, v.Name, v.Number <= installed.Version})
	}
	switch err := migrate.Check(ctx, conn); {
	case errors.Is(err, pawl.ErrSchemaMismatch):
		s.OK, s.Problem = false, oneLine(err.Error())
	case err != nil:
		return status{}, err
	}
	return s, nil
}

func printStatus(cmd *cobra.Command, s status) error {
	var rows [][]string
	for _, v := range s.Versions {
		state := "missing"
		if v.Applied {
			state = "applied"
		}
		rows = append(rows, []string{fmt.Sprintf("%04d", v.Number), v.Name, state})
	}
	if s.Installed > s.Newest {
		rows = append(rows, []string{fmt.Sprintf("%04d", s.Installed), "(unknown to this build)", "applied"})
	}
	out := cmd.OutOrStdout()
	if err := printTable(out, []string{"VERSION", "NAME", "STATE"}, rows); err != nil {
		return err
	}
	verdict := fmt.Sprintf("ok: the database fits this build (%s)", versionsOf(s.Installed))
	if !s.OK {
		verdict = "not ok: " + s.Problem
	}
	_, err := fmt.Fprintln(out, verdict)
	return err
}
