// Package pgconn has the names that the test data uses.
package pgconn

type CommandTag struct{}

func (CommandTag) RowsAffected() int64 { return 0 }

type PgError struct{ Code string }

func (*PgError) Error() string { return "" }
