// Package hatest runs Pawl on a Patroni cluster that fails: etcd, two or three PostgreSQL servers and, if a test asks for it, HAProxy, as processes of this
// machine. A load runs while a primary is switched over, killed, cut off or silenced, and a judge compares what was acknowledged or answered with the rows.
//
//	callers, consumers, workers ──▶ a forwarder a node ──▶ PostgreSQL ◀── Patroni ──▶ a forwarder a node ──▶ etcd
//	                                                           ▲
//	                         the other nodes ──▶ forwarders ───┘
//
// A forwarder can stop forwarding without closing: a partition.
//
// The tests need the build tag proof, Linux, and Debian's packages etcd-server, patroni, haproxy and postgresql:
//
//	go test -tags proof ./internal/testbed/hatest                                  # one switchover, one kill
//	go test -tags proof ./internal/testbed/hatest -ha.nightly -timeout 2h -v       # all failures, with the bounds of docs/operating/high-availability.md
package hatest
