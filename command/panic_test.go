package command_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/command"
)

// An unwritable panics when it is marshaled while Bad is set.
type unwritable struct{ Bad bool }

func (u unwritable) MarshalJSON() ([]byte, error) {
	if u.Bad {
		panic("no text")
	}
	return []byte(`{}`), nil
}

// A result that panics while it is encoded counts as a failure of the handler.
func TestResult_Panics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	insert := func(ctx context.Context, tx pgx.Tx, u unwritable) (unwritable, error) {
		_, err := tx.Exec(ctx, "insert into orders (body) values ('x')")
		return u, err
	}
	for name, call := range map[string]func(u unwritable) error{
		"once": func(u unwritable) error {
			_, err := command.Once(t.Context(), b.pool, intent("once", "x"), b.options(), func(ctx context.Context, tx pgx.Tx) (unwritable, error) { return insert(ctx, tx, u) })
			return err
		},
		"leased": func(u unwritable) error {
			_, err := command.Leased(t.Context(), b.pool, intent("leased", "x"), command.LeaseOptions{Repeatable: true, Hooks: b.hooks()},
				func(ctx context.Context, a *command.Attempt[unwritable]) error {
					return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) (unwritable, error) { return insert(ctx, tx, u) })
				})
			return err
		},
		"begun": func(u unwritable) error {
			a, _, err := command.Begin[unwritable](t.Context(), b.pool, intent("begun", "x"), command.LeaseOptions{Repeatable: true, Hooks: b.hooks()})
			if err != nil {
				return err
			}
			defer a.Close()
			err = a.Commit(t.Context(), func(ctx context.Context, tx pgx.Tx) (unwritable, error) { return insert(ctx, tx, u) })
			if err != nil {
				_ = a.Fail(t.Context(), err)
			}
			return err
		},
	} {
		if err := call(unwritable{Bad: true}); err == nil || !strings.Contains(err.Error(), "panic: no text, at ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.wantOrders(0)
}
