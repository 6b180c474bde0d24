// Package hatest runs Pawl on a failing Patroni cluster: etcd, two or three PostgreSQL servers and
// optionally HAProxy, as local processes. A load runs while a primary is switched over, killed,
// partitioned or frozen. A judge compares the acknowledged and answered requests with the rows.
//
//	callers, consumers, workers ──▶ forwarders ──▶ PostgreSQL ◀── Patroni ──▶ forwarders ──▶ etcd
//	                                                   ▲
//	                 the other nodes ──▶ forwarders ───┘
//
// Each node has its own forwarders. A forwarder can stop forwarding without closing its
// connections, which simulates a partition.
//
// The tests need the build tag proof, Linux, and Debian's packages etcd-server, patroni, haproxy
// and postgresql:
//
//	# one switchover, one kill
//	go test -tags proof ./internal/testbed/hatest
//	# all failures, with the bounds of docs/operating/high-availability.md
//	go test -tags proof ./internal/testbed/hatest -ha.nightly -timeout 2h -v
package hatest
