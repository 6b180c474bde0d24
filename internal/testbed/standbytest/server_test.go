package standbytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
)

// settings are those of a primary and its standbys. A standby needs at least as many connections.
var settings = map[string]string{"max_connections": "200"}

// startStandby starts a server that replicates the primary by streaming. name is for
// synchronous_standby_names. The standby is a copy of the cluster, made while the primary runs. It
// ends with the test.
func startStandby(tb testing.TB, primary *postgres.Server, name string) *postgres.Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	dir, err := os.MkdirTemp("", "pawl-standby-")
	must(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(tb, os.Chmod(dir, 0o711)) // the server's user passes through
	data := filepath.Join(dir, "data")
	must(tb, backup(tb, primary, data, name))
	standby, err := postgres.Start(ctx, postgres.Options{BinDir: primary.BinDir(), DataDir: data, Settings: settings})
	must(tb, err)
	tb.Cleanup(func() { _ = standby.Stop() })
	patience.Row(tb, connect(tb, standby.URL("postgres")), "the standby receives", receives)
	return standby
}

const receives = "select exists (select from pg_stat_wal_receiver as r where r.status = 'streaming')"

// Cut stops the standby from receiving WAL. Later commits of its primary are not replicated.
func (p *servers) Cut() {
	p.tb.Helper()
	conn := connect(p.tb, p.StandbyURL())
	execute(p.tb, conn, "alter system set primary_conninfo = ''", "select pg_reload_conf()")
	patience.Row(p.tb, conn, "the standby receives nothing", "select not exists (select from pg_stat_wal_receiver)")
}

// Join makes the standby receive again after Cut.
func (p *servers) Join() {
	p.tb.Helper()
	conn := connect(p.tb, p.StandbyURL())
	execute(p.tb, conn, "alter system reset primary_conninfo", "select pg_reload_conf()")
	patience.Row(p.tb, conn, "the standby receives", receives)
}

// Promote makes the standby a primary with the WAL that it has received.
func (p *servers) Promote() {
	p.tb.Helper()
	execute(p.tb, connect(p.tb, p.StandbyURL()), "select pg_promote()")
}

// backup copies the primary's cluster to data and configures it as a standby.
func backup(tb testing.TB, primary *postgres.Server, data, name string) error {
	tb.Helper()
	conn := connect(tb, primary.URL("postgres"))
	execute(tb, conn, "alter system set wal_keep_size = '256MB'", "select pg_reload_conf()", "select pg_backup_start('standby', true)")
	if err := copyRunning(primary.DataDir(), data); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(context.Background(), "select b.labelfile from pg_backup_stop(false) as b").Scan(&label); err != nil {
		return err
	}
	from := fmt.Sprintf(`host='%s' port=5432 user=postgres application_name=%s`, strings.ReplaceAll(primary.Dir(), "'", `\'`), name)
	// Not in postgresql.auto.conf, because Cut overrides the setting there.
	main := filepath.Join(data, "postgresql.conf")
	text, err := os.ReadFile(main)
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "\nprimary_conninfo = '%s'\n", strings.ReplaceAll(from, "'", "''"))
	for file, content := range map[string]string{main: string(text), filepath.Join(data, "backup_label"): label, filepath.Join(data, "standby.signal"): ""} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
		if err := ownAs(data, file); err != nil {
			return err
		}
	}
	return nil
}

// copyRunning copies a cluster in use, between pg_backup_start and pg_backup_stop, with its owner.
// Files may appear and disappear meanwhile.
func copyRunning(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		name, relative := filepath.Rel(from, path)
		target := filepath.Join(to, name)
		switch {
		case err != nil || relative != nil:
			return unlessGone(errors.Join(err, relative))
		case name == "postmaster.pid" || name == "postmaster.opts" || filepath.Dir(name) == "pg_wal":
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			err = os.Mkdir(target, 0o700)
		case entry.Type().IsRegular():
			err = copyFile(path, target)
		default:
			return nil
		}
		if err != nil {
			return unlessGone(err)
		}
		return ownAs(from, target)
	})
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// ownAs makes the owner of a cluster the owner of a file.
func ownAs(cluster, file string) error {
	info, err := os.Stat(cluster)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	return os.Lchown(file, int(owner.Uid), int(owner.Gid))
}

// A standby has its primary's commits. After Cut it gets no new ones, after Join it gets them, and
// after Promote it accepts writes.
func TestServers_StandbyFollowsIsCutJoinsAndIsPromoted(t *testing.T) {
	t.Parallel()
	p := newServers(t, func(context.Context, *pgx.Conn) error { return nil })
	standby, other := connect(t, p.StandbyURL()), connect(t, p.URL())
	execute(t, other, "create table kept (n int)", "insert into kept values (1), (2)")
	patience.Row(t, standby, "the table is replicated", "select exists (select from pg_tables as t where t.tablename = 'kept')")
	patience.Row(t, standby, "two rows are replicated", "select count(*) = 2 from kept")

	p.Cut()
	waiting := make(chan error, 1)
	go func() {
		_, err := other.Exec(t.Context(), "insert into kept values (3)")
		waiting <- err
	}()
	p.Until("select exists (select from pg_stat_activity as a where a.wait_event = 'SyncRep')")
	var got int
	must(t, standby.QueryRow(t.Context(), "select count(*) from kept").Scan(&got))
	if got != 2 {
		t.Errorf("a standby that was cut off has %d rows", got)
	}
	p.Join()
	must(t, <-waiting)
	patience.Row(t, standby, "the third row is replicated", "select count(*) = 3 from kept")

	p.Cut()
	p.Promote()
	patience.Row(t, standby, "it is a primary", "select not pg_is_in_recovery()")
	execute(t, standby, "insert into kept values (4)")
}
