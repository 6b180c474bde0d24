package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A meter measures the cost of a measurement: WAL and processor time.
type meter struct {
	host           *host
	lsn            string
	client, server float64
}

func (h *host) meter(ctx context.Context) (m meter, err error) {
	m = meter{host: h, client: h.clientCPU(), server: serverCPU(h.server.PID())}
	err = h.admin.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&m.lsn)
	return m, err
}

// charge stores the cost since the meter was created in a round of count jobs.
func (m meter) charge(ctx context.Context, r *Round, count int) error {
	client, server := m.host.clientCPU()-m.client, serverCPU(m.host.server.PID())-m.server
	var bytes float64
	err := m.host.admin.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::text::pg_lsn)::float8", m.lsn).Scan(&bytes)
	if err != nil || count == 0 {
		return err
	}
	thousands := float64(count) / 1000
	r.Count = count
	r.WAL, r.ClientCPU, r.ServerCPU = bytes/thousands, client/thousands, server/thousands
	return nil
}

// ownCPU returns the processor time, in seconds, of this process and the children that it has
// waited for (pgbench).
func ownCPU() (seconds float64) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			for _, t := range []syscall.Timeval{u.Utime, u.Stime} {
				seconds += float64(t.Sec) + float64(t.Usec)/1e6
			}
		}
	}
	return seconds
}

// clientCPU returns ownCPU plus the time of running children, such as a worker process. When a
// child ends, its time moves to ownCPU.
func (h *host) clientCPU() (seconds float64) {
	seconds = ownCPU()
	for _, p := range processes() {
		if p.parent == os.Getpid() && p.pid != h.server.PID() {
			seconds += p.own + p.waited
		}
	}
	return seconds
}

const ticksPerSecond = 100 // USER_HZ, the same on every Linux that Go supports

// serverCPU returns the processor time of a server, its running children and those it has waited
// for, in seconds. It returns zero without /proc.
func serverCPU(postmaster int) (seconds float64) {
	for _, p := range processes() {
		switch postmaster {
		case p.pid:
			seconds += p.own + p.waited
		case p.parent:
			seconds += p.own
		}
	}
	return seconds
}

// A processTime is the processor time of one process, in seconds.
type processTime struct {
	pid, parent int
	own, waited float64 // waited: by its ended children
}

func processes() (all []processTime) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has just ended
		}
		var p processTime
		p.pid, p.parent, p.own, p.waited = processTimes(string(text))
		all = append(all, p)
	}
	return all
}

// processTimes parses a line of /proc/PID/stat: fields 1, 4, 14 + 15 and 16 + 17. It counts after
// the command's name, which may contain spaces.
func processTimes(stat string) (pid, parent int, own, waited float64) {
	_, _ = fmt.Sscan(stat, &pid)
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 15 {
		return pid, 0, 0, 0
	}
	parent, _ = strconv.Atoi(fields[1])
	ticks := func(at int) float64 { n, _ := strconv.ParseFloat(fields[at], 64); return n / ticksPerSecond }
	return pid, parent, ticks(11) + ticks(12), ticks(13) + ticks(14)
}
