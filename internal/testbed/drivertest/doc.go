// Package drivertest opens the doors on database/sql with drivers that are not pgx's: lib/pq, which is refused, and pgx's inside a
// wrapper, which is taken. It is a module of its own so that nobody else needs those drivers.
package drivertest
