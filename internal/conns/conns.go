// Package conns handles connections. It divides a pool among the parts of a process, and replaces a
// pool's connections after a failover. It also opens connections beside the pool, and detects a
// pooler between client and server.
package conns

import "fmt"

// Housekeeping is the number of connections that a consumer or worker keeps free of handlers, for
// heartbeats, claims and storing.
const Housekeeping = 2

// Limit returns how many connections a part may use: its limit, or the whole pool if the limit is
// 0.
func Limit(limit, pool int) (int, error) {
	switch {
	case limit < 0 || limit > pool:
		return 0, fmt.Errorf("the MaxConns must lie between 1 and the %d connections of the pool, it is %d: lower it, or set pool_max_conns=%d in the database URL",
			pool, limit, max(limit, 1))
	case limit == 0:
		return pool, nil
	}
	return limit, nil
}

// Divide returns the share of each part of a pool. fits is false if the pool is smaller than the
// sum of the minimums. The rest is divided evenly among the parts that can use more. The sum of the
// shares never exceeds the pool.
func Divide(pool int, least []int, grows []bool) (shares []int, fits bool) {
	rest, growing := pool, 0
	for i, n := range least {
		rest -= n
		if grows[i] {
			growing++
		}
	}
	shares = append(shares, least...)
	if rest < 0 {
		return shares, false
	}
	for i := range shares {
		if grows[i] {
			more := rest / growing
			shares[i] += more
			rest -= more
			growing--
		}
	}
	return shares, true
}
