package recipes

import (
	"context"
	"database/sql"
	"errors"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/pawl-go/pawl"
)

// A GormOrder is a row, for GORM.
type GormOrder struct {
	ID    string
	Cents int64
}

// TableName is the name of the table.
func (GormOrder) TableName() string { return "recipe_order" }

// OpenGorm opens GORM on a handle that shares Pawl's pool. It connects when it is used. PrepareStmt
// works with it.
func OpenGorm(db *sql.DB) (*gorm.DB, error) {
	return gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{PrepareStmt: true, DisableAutomaticPing: true})
}

// GormOn returns GORM on one transaction, without prepared statements. GORM caches prepared
// statements per handle, and those of another handle cannot be used in the transaction.
func GormOn(ctx context.Context, db *gorm.DB, tx *sql.Tx) *gorm.DB {
	// with a Context the session has its own statement
	session := db.Session(&gorm.Session{NewDB: true, Context: ctx})
	session.Statement.ConnPool = tx
	return session
}

// InsertGorm writes an order with GORM.
func InsertGorm(db *gorm.DB) func(context.Context, *sql.Tx, Order) error {
	return func(ctx context.Context, tx *sql.Tx, o Order) error {
		return GormOn(ctx, db, tx).Create(&GormOrder{ID: o.ID, Cents: o.Cents}).Error
	}
}

// InsertGormPrepared writes an order with a GORM that prepares its statements on the transaction,
// and closes them with it.
func InsertGormPrepared(ctx context.Context, tx *sql.Tx, o Order) error {
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: tx}), &gorm.Config{PrepareStmt: true, DisableAutomaticPing: true})
	if err != nil {
		return err
	}
	return db.WithContext(ctx).Create(&GormOrder{ID: o.ID, Cents: o.Cents}).Error
}

// GormTx returns the transaction that GORM began, for Pawl, and an error if tx is not in one.
func GormTx(tx *gorm.DB) (pawl.DB, error) {
	if _, begun := tx.Statement.ConnPool.(gorm.TxCommitter); !begun {
		return nil, errors.New("this *gorm.DB is not in a transaction: use the one that Transaction passes")
	}
	return pawl.SQL(tx.Statement.ConnPool), nil
}

// PlaceWithGorm runs in a transaction that GORM begins: the order and the job commit together.
func PlaceWithGorm(ctx context.Context, db *gorm.DB, o Order) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&GormOrder{ID: o.ID, Cents: o.Cents}).Error; err != nil {
			return err
		}
		on, err := GormTx(tx)
		if err != nil {
			return err
		}
		_, err = Ship.Enqueue(ctx, on, o)
		return err
	})
}
