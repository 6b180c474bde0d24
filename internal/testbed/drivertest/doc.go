// Package drivertest opens the database/sql entry points with other drivers than pgx's: lib/pq,
// which is refused, and pgx's inside a wrapper, which is accepted. It is a separate module so that
// no other module needs those drivers.
package drivertest
