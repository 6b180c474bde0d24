package doors_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// breakable wraps a function of the contract. The wrapper fails with the SQLSTATE in table broken,
// if there is one. The state 'lost' ends the connection.
func breakable(function string) string {
	return fmt.Sprintf(`create sequence hits; create table broken (state text); insert into broken values (null);
do $do$
declare
  f pg_proc;
begin
  select p.* into strict f from pg_proc as p where p.proname = '%[1]s' and p.pronamespace = 'pawl_v1'::regnamespace;
  execute format('create function pawl_v1.%[1]s_stub(%%s) returns %%s language plpgsql as $f$
    declare
      v_state text := (select b.state from public.broken as b);
    begin
      if v_state is not null then
        perform nextval(''public.hits'');
        if v_state = ''lost'' then
          perform pg_terminate_backend(pg_backend_pid());
        end if;
        raise exception ''broken'' using errcode = v_state;
      end if;
      return query select r.* from pawl_v1.%[1]s_real(%%s) as r;
    end $f$',
    pg_get_function_arguments(f.oid), pg_get_function_result(f.oid),
    (select string_agg('$' || g, ', ' order by g) from generate_series(1, f.pronargs) as g));
  alter function pawl_v1.%[1]s rename to %[1]s_real;
  alter function pawl_v1.%[1]s_stub rename to %[1]s;
end $do$`, function)
}

// claims are the functions with which each door claims its work.
var claims = map[string]struct {
	door, function string
}{
	"consumer":                   {"consumer", "inbox_claim"},
	"consumer, batch":            {"consumer, batch", "inbox_claim_many"},
	"consumer, store":            {"consumer, store", "inbox_claim"},
	"consumer, attempt":          {"consumer, attempt", "job_hold"},
	"job, HandleTx":              {"job, HandleTx", "job_open"},
	"job, HandleManyTx":          {"job, HandleManyTx", "job_hold_many"},
	"job, HandleSQL":             {"job, HandleSQL", "job_open"},
	"job, HandleManySQL":         {"job, HandleManySQL", "job_hold_many"},
	"job, HandleThenTx":          {"job, HandleThenTx", "job_open"},
	"job, HandleThenSQL":         {"job, HandleThenSQL", "job_open"},
	"consumer, HandleSQL":        {"consumer, HandleSQL", "inbox_claim"},
	"consumer, HandleSQL, store": {"consumer, HandleSQL, store", "inbox_claim"},
	"consumer, HandleManySQL":    {"consumer, HandleManySQL", "inbox_claim_many"},
	"consumer, attempt, SQL":     {"consumer, attempt, SQL", "job_hold"},
	"command, Once":              {"command, Once", "command_open"},
	"command, OnceSQL":           {"command, OnceSQL", "command_open"},
	"command, Leased":            {"command, Leased", "command_claim"},
	"command, Commit":            {"command, Leased", "command_hold"},
	"httpkey":                    {"httpkey", "command_open"},
}

func init() {
	doors["consumer, store"] = func(v *visit) {
		v.consumer(v.applyTx().With(consumer.TxPolicy{Policy: v.policy(), Mode: consumer.StoreFirst}))
	}
}

// While a claim fails for any reason, no handler runs and nothing is acknowledged. Afterwards there
// is one effect.
func TestDoors_NothingIsHandledUnclaimed(t *testing.T) {
	t.Parallel()
	for name, c := range claims {
		for _, state := range []string{"57014", "42501", "53300", "42883", "lost"} {
			t.Run(name+"/"+state, func(t *testing.T) {
				t.Parallel()
				pool := pawltest.DB(t, schema, breakable(c.function))
				admin, err := pgxpool.NewWithConfig(t.Context(), pool.Config())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(admin.Close)
				set := func(state any) {
					if _, err := admin.Exec(t.Context(), "update broken set state = $1", state); err != nil {
						t.Error(err)
					}
				}
				v := &visit{T: t, pool: pool, key: "k", attempts: 1000}
				v.do = func(_ context.Context, exec func(string) error) error {
					v.calls.Add(1)
					return exec("insert into effect values ('k', 'before')")
				}
				set(state)
				mended := make(chan struct{})
				go func() {
					defer close(mended)
					defer set(nil)
					err := patience.Poll(t.Context(), func() (twice bool) {
						if err := admin.QueryRow(t.Context(), "select is_called and last_value >= 2 from hits").Scan(&twice); err != nil {
							t.Error(err)
							return true
						}
						return twice
					})
					if err != nil {
						t.Error(err)
					}
					if n := v.calls.Load(); n != 0 {
						t.Errorf("the handler ran %d times unclaimed", n)
					}
				}()
				patience.Until(t, "the handler has run", func() bool { doors[c.door](v); return v.effects() > 0 })
				<-mended
				if n := v.effects(); n != 1 {
					t.Errorf("%d effects, want 1", n)
				}
			})
		}
	}
}

func (v *visit) effects() (n int) {
	if err := v.pool.QueryRow(context.WithoutCancel(v.Context()), "select count(*) from effect").Scan(&n); err != nil {
		v.Error(err)
	}
	return n
}
