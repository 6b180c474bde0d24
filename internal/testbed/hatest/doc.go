// Package hatest runs Pawl on a failing Patroni cluster: etcd, two or three PostgreSQL servers and
// optionally HAProxy, as local processes. A load runs while a primary is switched over, killed,
// partitioned or frozen. A judge compares the acknowledged and answered requests with the rows.
//
//	callers, consumers, workers ──▶ a forwarder a node ──▶ PostgreSQL ◀── Patroni ──▶ a forwarder a node ──▶ etcd
//	                                                           ▲
//	                         the other nodes ──▶ forwarders ───┘
//
// A forwarder can stop forwarding without closing its connections, which simulates a partition.
//
// The tests need the build tag proof, Linux, and Debian's packages etcd-server, patroni, haproxy
// and postgresql:
//
//	go test -tags proof ./internal/testbed/hatest                                  # one switchover, one kill
//	go test -tags proof ./internal/testbed/hatest -ha.nightly -timeout 2h -v       # all failures, with the bounds of docs/operating/high-availability.md
package hatest
