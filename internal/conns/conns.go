// Package conns holds what Pawl knows of connections: how the parts of a process share a pool, how a
// pool's connections are made anew after a failover, how a connection is made beside the pool, and
// how a pooler between the client and the server is recognised.
package conns

import "fmt"

// Housekeeping is how many connections of the pool a consumer or a worker keeps free of handlers, for heartbeats, claims and storing.
const Housekeeping = 2

// Limit returns how many connections a part may plan with: its limit, or all of the pool's if it has none.
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

// Divide returns the share of each part of a pool, or false if the pool is smaller than the sum of what they need at least. What is left is
// divided evenly among the parts that can use more. The sum of the shares is never above the pool.
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
