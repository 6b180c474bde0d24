package recipes_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/pawl-go/pawl/examples/recipes"
	"github.com/pawl-go/pawl/pawltest"
)

// GormTx accepts only a handle of an open transaction. With the outer handle, a job would stay when
// the rows roll back.
func TestGormTx_RefusesTheOuterHandle(t *testing.T) {
	t.Parallel()
	db := stdlib.OpenDBFromPool(pawltest.DB(t, recipes.Schema))
	for _, prepare := range []bool{true, false} {
		g := onGorm(t, db, prepare)
		if _, err := recipes.GormTx(g.WithContext(t.Context())); err == nil {
			t.Error("the outer handle is accepted")
		}
		if err := g.Transaction(func(tx *gorm.DB) error {
			_, err := recipes.GormTx(tx)
			_, nested := recipes.GormTx(tx.WithContext(t.Context()).Where("true"))
			return errors.Join(err, nested)
		}); err != nil {
			t.Error(err)
		}
	}
}

// A GORM with a pool of its own can write in a handler's transaction and in one that it begins.
func TestGorm_FromADSN(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, recipes.Schema)
	g, err := gorm.Open(postgres.Open(pool.Config().ConnString()), &gorm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	own := ready(t, (*sql.DB).Close)(g.DB())
	tx := begin(t, stdlib.OpenDBFromPool(pool))
	if err := recipes.Place(t.Context(), tx, order, recipes.InsertGorm(g)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil || own.Stats().InUse != 0 {
		t.Fatal(err, own.Stats())
	}
	wantOrder(t, pool, 0)
	if err := recipes.PlaceWithGorm(t.Context(), g, order); err != nil {
		t.Fatal(err)
	}
	wantOrder(t, pool, 1)
}

// On the transaction of a handler, Transaction is a savepoint, and Begin is refused.
func TestGormOn_Nested(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, recipes.Schema)
	db := stdlib.OpenDBFromPool(pool)
	tx := begin(t, db)
	g := recipes.GormOn(t.Context(), openGorm(t, db), tx)
	if err := g.Begin().Error; !errors.Is(err, gorm.ErrInvalidTransaction) {
		t.Errorf("Begin: %v", err)
	}
	undone := errors.New("undone")
	for _, end := range []error{undone, nil} {
		if err := g.Transaction(func(nested *gorm.DB) error {
			return errors.Join(nested.Create(&recipes.GormOrder{ID: order.ID, Cents: order.Cents}).Error, end)
		}); !errors.Is(err, end) {
			t.Errorf("Transaction: %v, want %v", err, end)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := pool.QueryRow(t.Context(), "select count(*) from recipe_order").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows (%v)", rows, err)
	}
	prepared := onGorm(t, begin(t, db), true)
	for name, err := range map[string]error{"Begin": prepared.Begin().Error, "Transaction": prepared.Transaction(func(*gorm.DB) error { return nil })} {
		if !errors.Is(err, gorm.ErrInvalidTransaction) {
			t.Errorf("%s of a handle that prepares on the transaction: %v", name, err)
		}
	}
}
