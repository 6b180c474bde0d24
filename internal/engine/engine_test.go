package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/doctor"
	"github.com/pawl-go/pawl/internal/engine"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/pawltest"
)

// probed answers the probe. pgx requests numbers and booleans in binary format.
func probed(number, missing, plpgsql, locks string) func(string) ([]string, []string, *pgproto3.ErrorResponse) {
	return func(string) ([]string, []string, *pgproto3.ErrorResponse) {
		return []string{"int4", "text", "bool", "bool", "text"}, []string{number, missing, plpgsql, locks, "UTF8"}, nil
	}
}

func failing(string) ([]string, []string, *pgproto3.ErrorResponse) {
	return nil, nil, &pgproto3.ErrorResponse{Severity: "ERROR", Code: "42883", Message: "unknown function: pg_try_advisory_xact_lock()"}
}

const (
	v15, v13 = "\x00\x02\x49\xf0", "\x00\x01\xfb\xd0"
	yes, no  = "\x01", "\x00"
)

// A server that is not PostgreSQL or lacks a feature is refused with the reason and the next step:
// by migrate up, by a program's startup check, and by the doctor. None of these servers runs here;
// their answers come from their documentation.
func TestRefuse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fake
		because string
	}{
		"CockroachDB":             {fake{"CockroachDB CCL v25.4.0 (x86_64-pc-linux-gnu, built 2025/11/03, go1.23)", failing}, "this is CockroachDB, not PostgreSQL"},
		"YugabyteDB":              {fake{"PostgreSQL 15.12-YB-2025.2.0.0-b0 on x86_64-pc-linux-gnu", probed(v15, "", yes, yes)}, "this is YugabyteDB"},
		"Redshift":                {fake{"PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2, Redshift 1.0.77467", failing}, "this is Amazon Redshift"},
		"Greenplum":               {fake{"PostgreSQL 12.12 (Greenplum Database 7.1.0) on x86_64", failing}, "this is Greenplum"},
		"no PostgreSQL":           {fake{"H2 2.3.232", failing}, "this is not PostgreSQL: H2"},
		"without PL/pgSQL (DSQL)": {fake{"PostgreSQL 16", probed(v15, "", no, yes)}, "there is no PL/pgSQL here"},
		"without a function":      {fake{"PostgreSQL 16", probed(v15, "pg_notify", yes, yes)}, "there is no function pg_notify"},
		"locks that lock nothing": {fake{"PostgreSQL 16", probed(v15, "", yes, no)}, "excludes no one"},
		"an error for the probe":  {fake{"PostgreSQL 16 (another)", failing}, "unknown function: pg_try_advisory_xact_lock"},
		"an old PostgreSQL":       {fake{"PostgreSQL 13.23 on x86_64", probed(v13, "", yes, yes)}, "this is PostgreSQL 13, and the schema needs 14"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := c.connect(t)
			err := engine.Refuse(t.Context(), conn)
			if pawl.CodeOf(err) != "0A000" || !strings.Contains(err.Error(), c.because) || pawl.Retryable(err) {
				t.Errorf("got %v", err)
			}
			if _, err := migrate.Up(t.Context(), conn, nil); pawl.CodeOf(err) != "0A000" || !strings.Contains(err.Error(), c.because) {
				t.Errorf("migrate up: %v", err)
			}
			d, err := doctor.Diagnose(t.Context(), conn, doctor.Limits{})
			if err != nil || len(d.Findings) != 1 || d.Findings[0].Check != "engine" || !strings.Contains(d.Findings[0].What, c.because) || d.Findings[0].Fix == "" || len(d.Unchecked) != 1 {
				t.Errorf("doctor: %+v, %v", d, err)
			}
		})
	}
}

// PostgreSQL is accepted, even while another session holds the lock of the probe.
func TestRefuse_PostgreSQLIsTaken(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	for range 2 {
		if err := engine.Refuse(t.Context(), tx); err != nil {
			t.Error(err)
		}
	}
	if err := engine.Refuse(t.Context(), pool); err != nil {
		t.Errorf("while another session holds the lock: %v", err)
	}
	if major, err := engine.Major(t.Context(), pool); err != nil || major < engine.Oldest {
		t.Errorf("%d, %v", major, err)
	}
}

// PostgreSQL is accepted even if it quotes all identifiers.
func TestRefuse_QuotedIdentifiers(t *testing.T) {
	t.Parallel()
	config := pawltest.DB(t).Config().ConnConfig
	config.RuntimeParams["quote_all_identifiers"] = "on"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := engine.Refuse(t.Context(), conn); err != nil {
		t.Error(err)
	}
	if _, err := migrate.Down(t.Context(), conn, 0, nil); err != nil {
		t.Error(err)
	}
	if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
		t.Error(err)
	}
	if err := migrate.Check(t.Context(), conn); err != nil {
		t.Error(err)
	}
	if d, err := doctor.Diagnose(t.Context(), conn, doctor.Limits{Skip: []string{"durability", "path"}}); err != nil || len(d.Findings) > 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

// A database that cannot store every text is refused with that reason before anything is installed.
func TestRefuse_OtherEncodings(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"LATIN1", "SQL_ASCII", "EUC_JP"} {
		t.Run(encoding, func(t *testing.T) {
			admin := pawltest.DB(t)
			config := admin.Config().ConnConfig
			name := config.Database + "_" + strings.ToLower(encoding)
			if _, err := admin.Exec(t.Context(), "create database "+name+" encoding '"+encoding+"' locale 'C' template template0"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = admin.Exec(context.Background(), "drop database "+name) })
			config.Database, config.RuntimeParams["client_encoding"] = name, "UTF8"
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			_, up := migrate.Up(t.Context(), conn, nil)
			for what, err := range map[string]error{"up": up, "check": migrate.Check(t.Context(), conn)} {
				if pawl.CodeOf(err) != "0A000" || !strings.Contains(err.Error(), "needs a database in UTF8") || !strings.Contains(err.Error(), encoding) {
					t.Errorf("%s: %v", what, err)
				}
			}
			d, err := doctor.Diagnose(t.Context(), conn, doctor.Limits{Skip: []string{"durability"}})
			if err != nil || len(d.Findings) == 0 || !strings.Contains(d.Findings[0].What, "UTF8") {
				t.Errorf("doctor: %+v, %v", d, err)
			}
		})
	}
}
