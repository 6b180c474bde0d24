// Package gorm has the names that the test data uses.
package gorm

type DB struct{ Error error }

func (*DB) Transaction(fn func(tx *DB) error) error { return nil }
func (d *DB) Exec(sql string, values ...any) *DB    { return d }
func (d *DB) Raw(sql string, values ...any) *DB     { return d }
func (d *DB) Scan(dest any) *DB                     { return d }
func (d *DB) Commit() *DB                           { return d }
func (d *DB) Rollback() *DB                         { return d }
func (d *DB) Begin() *DB                            { return d }
