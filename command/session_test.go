package command_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
)

// A handler may change its session, cursors, prepared statements and savepoints.
func TestOnce_TheSessionIsTheHandlersToUse(t *testing.T) {
	t.Parallel()
	texts := map[string][]string{
		"close all":           {"declare mine cursor for select 1", "close all"},
		"close all, hold":     {"declare mine cursor with hold for select 1", "close all"},
		"deallocate all":      {"deallocate all"},
		"discard":             {"discard plans", "discard sequences"},
		"set":                 {"set search_path = pg_temp", "set application_name = 'x'", "set statement_timeout = '1min'"},
		"reset all":           {"set local work_mem = '1MB'", "reset all"},
		"rollback to":         {"savepoint a", "insert into public.orders (body) values ('gone')", "rollback to a"},
		"rollback to, closed": {"savepoint a", "close all", "rollback to a"},
		"release":             {"savepoint a", "savepoint b", "rollback to savepoint b", "release a"},
	}
	ways := map[string]func(*bed, pawl.Intent, ...string) (command.Result[int], error){
		"pgx": func(b *bed, i pawl.Intent, texts ...string) (command.Result[int], error) {
			return command.Once(b.Context(), b.pool, i, b.options(), func(ctx context.Context, tx pgx.Tx) (n int, err error) {
				for _, text := range texts {
					if _, err := tx.Exec(ctx, text); err != nil {
						return 0, err
					}
				}
				return 1, nil
			})
		},
		"connection, simple protocol": func(b *bed, i pawl.Intent, texts ...string) (command.Result[int], error) {
			return command.Once(b.Context(), b.pool, i, b.options(), func(ctx context.Context, tx pgx.Tx) (n int, err error) {
				for _, text := range texts {
					if text == "deallocate all" {
						if err := tx.Conn().DeallocateAll(ctx); err != nil {
							return 0, err
						}
					} else if _, err := tx.Conn().PgConn().Exec(ctx, text).ReadAll(); err != nil {
						return 0, err
					}
				}
				return 1, nil
			})
		},
		"sql": func(b *bed, i pawl.Intent, texts ...string) (command.Result[int], error) {
			db := stdlib.OpenDBFromPool(b.pool)
			defer db.Close()
			return command.OnceSQL(b.Context(), db, i, b.options(), func(ctx context.Context, tx *sql.Tx) (n int, err error) {
				for _, text := range texts {
					if _, err := tx.ExecContext(ctx, text); err != nil {
						return 0, err
					}
				}
				return 1, nil
			})
		},
	}
	for way, once := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			for name, texts := range texts {
				if name == "deallocate all" && way == "sql" {
					continue // see TestOnceSQL_DroppedStatements
				}
				i := pawl.Intent{Scope: "session", Key: name, Fingerprint: pawl.FingerprintOf(nil)}
				for n := range 4 { // also on connections that have our statements prepared
					r, err := once(b, i, append(texts, "insert into public.orders (body) values ('one')")...)
					if err != nil || r.Replayed != (n > 0) {
						t.Errorf("%s: %+v, %v", name, r, err)
					}
				}
			}
			if way == "sql" {
				b.wantOrders(len(texts) - 1)
			} else {
				b.wantOrders(len(texts))
			}
		})
	}
}

// database/sql does not notice that its prepared statements are gone, so the error says what to do.
// PostgreSQL refuses DISCARD ALL inside a transaction.
func TestOnceSQL_DroppedStatements(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := stdlib.OpenDBFromPool(b.pool)
	defer db.Close()
	sweep := func(key, text string) error {
		_, err := command.OnceSQL(t.Context(), db, intent(key, "p"), b.options(), func(ctx context.Context, tx *sql.Tx) (int, error) {
			if _, err := tx.ExecContext(ctx, "insert into orders (body) values ('one')"); err != nil {
				return 0, err
			}
			_, err := tx.ExecContext(ctx, text)
			return 1, err
		})
		return err
	}
	b.must(sweep("one", "select 1")) // prepares
	if err := sweep("two", "deallocate all"); pawl.CodeOf(err) != "26000" || !strings.Contains(err.Error(), "DEALLOCATE ALL") {
		t.Error(err)
	}
	if err := sweep("three", "discard all"); pawl.CodeOf(err) != "25001" && pawl.CodeOf(err) != "26000" {
		t.Error(err)
	}
	b.wantOrders(1)
}

// If the driver cannot read a stored answer, the error names the setting.
func TestOnce_ByteaOutput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	once := func(config *pgxpool.Config) (command.Result[string], error) {
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		return command.Once(t.Context(), pool, pawl.Intent{Scope: "s", Key: "k", Fingerprint: pawl.FingerprintOf(nil)}, b.options(),
			func(context.Context, pgx.Tx) (string, error) { return "one", nil })
	}
	config := b.pool.Config()
	if _, err := once(config); err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["bytea_output"] = "escape"
	if r, err := once(config); err != nil || r.Value != "one" {
		t.Errorf("%+v, %v", r, err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if r, err := once(config); err == nil || !strings.Contains(err.Error(), "bytea_output") {
		t.Errorf("%+v, %v", r, err)
	}
}
