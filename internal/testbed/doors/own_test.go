package doors_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schedule"
	pawlschema "github.com/pawl-go/pawl/schema"
	"github.com/pawl-go/pawl/step"
)

// plain are the doors that lend no transaction.
var plain = map[string]func(*visit){
	"job, Handle": func(v *visit) {
		v.repeats = true
		v.job("alone", "", job.Handle("k", func(ctx context.Context, _ job.Task[[]byte]) error { return v.alone(ctx) }))
	},
	"job, HandleMany": func(v *visit) {
		v.repeats = true
		v.job("many", "", job.HandleMany("k", func(ctx context.Context, _ []job.Task[[]byte]) []error { return []error{v.alone(ctx)} }))
	},
	"step": func(v *visit) {
		v.job("step", "", job.Handle("k", func(ctx context.Context, j job.Task[[]byte]) error {
			_, err := step.Run(ctx, v.pool, j, step.Step{Name: "s", Recovery: step.AtMostOnce(), Hooks: v.hooks()},
				func(ctx context.Context, _ step.Call) (int, error) { return 1, v.alone(ctx) })
			return err
		}))
	},
	"schedule": func(v *visit) {
		keeper, err := schedule.NewKeeper(v.pool, schedule.Config{Poll: 10 * time.Millisecond, Hooks: v.hooks(), Schedules: []schedule.Schedule{
			{Name: "s", Plan: schedule.Every(time.Hour), FirstAt: time.Now().Add(-time.Minute), Queue: "ticks", Kind: "k"}}})
		if err != nil {
			v.Fatal(err)
		}
		v.watch(keeper.Run, func() bool { return v.count("select count(*) from pawl.schedule where last_at is not null") > 0 })
		v.drain("ticks", v.handleTx())
	},
	"outbox": func(v *visit) {
		v.repeats = true
		err := pgx.BeginFunc(v.Context(), v.eyes(), func(tx pgx.Tx) error {
			return second(outbox.Append(v.Context(), tx, outbox.Event{Type: "t", AggregateType: "a", AggregateID: "1", Payload: []byte("{}")}))
		})
		if err != nil {
			v.Fatal(err)
		}
		relay, err := outbox.NewRelay(v.pool, outbox.Config{Sink: published(func(ctx context.Context) error { return v.alone(ctx) }),
			Poll: 10 * time.Millisecond, Hooks: v.hooks(), Backoff: soon})
		if err != nil {
			v.Fatal(err)
		}
		v.watch(relay.Run, func() bool { return v.todo() == 0 })
	},
}

// A published is a sink that runs a function for each message.
type published func(ctx context.Context) error

func (p published) Publish(ctx context.Context, ms []pawl.Message) []error {
	errs := make([]error, len(ms))
	for i := range ms {
		errs[i] = p(ctx)
	}
	return errs
}

// clear deletes the rows that a refused visit has left.
func (v *visit) clear() {
	for _, table := range strings.Fields("job job_key lane worker schedule step") {
		if _, err := v.admin.Exec(context.WithoutCancel(v.Context()), "delete from pawl."+table); err != nil {
			v.Error(err)
		}
	}
}

// alone does the work in the handler's own transaction.
func (v *visit) alone(ctx context.Context) error {
	return pgx.BeginFunc(ctx, v.pool, func(tx pgx.Tx) error { return inPgx(v.do)(ctx, tx) })
}

// ownSchema has roles that a session may start with.
const ownSchema = `
do $$ begin create role door_app nologin; exception when duplicate_object or unique_violation then null; end $$;
do $$ begin grant pawl_operator to door_app; grant door_app to door_login; exception when unique_violation or internal_error then null; end $$;
grant all on effect, orders to door_app`

// A session is the initial state of a session.
type session struct {
	name, value string
	role        string   // for SET ROLE in AfterConnect
	super       bool     // the login must be a superuser
	refused     []string // texts of errors with which a door may refuse; nil: each door works
}

func (s session) String() string {
	if s.role != "" {
		return "set role " + s.role
	}
	return s.name + "=" + s.value
}

var sessions = []session{
	{role: "door_app"},
	{role: "door_tenant", refused: []string{"SET ROLE"}},
	{name: "role", value: "door_app"},
	{name: "role", value: "door_tenant", refused: []string{"SET ROLE"}},
	{name: "search_path", value: "evil, pg_catalog"},
	{name: "search_path", value: ""},
	// If a timeout fires when the statement is about to end, PostgreSQL reports it as a user's
	// request.
	{name: "statement_timeout", value: "1ms", refused: []string{"statement timeout", "canceling statement due to user request"}},
	{name: "lock_timeout", value: "1ms", refused: []string{"lock timeout", "canceling statement due to user request"}},
	{name: "idle_in_transaction_session_timeout", value: "1ms", refused: []string{"idle_in_transaction_session_timeout", "idle-in-transaction timeout"}},
	{name: "default_transaction_read_only", value: "on", refused: []string{"default_transaction_read_only"}},
	{name: "default_transaction_isolation", value: "serializable"},
	{name: "default_transaction_isolation", value: "repeatable read"},
	{name: "default_transaction_isolation", value: "read uncommitted"},
	{name: "default_transaction_deferrable", value: "on"},
	{name: "bytea_output", value: "escape"},
	{name: "DateStyle", value: "SQL, DMY"},
	{name: "DateStyle", value: "German"},
	{name: "DateStyle", value: "Postgres, MDY"},
	{name: "IntervalStyle", value: "sql_standard"},
	{name: "IntervalStyle", value: "postgres_verbose"},
	{name: "TimeZone", value: "America/St_Johns"},
	{name: "extra_float_digits", value: "-15"},
	{name: "client_encoding", value: "LATIN1"},
	{name: "client_encoding", value: "SQL_ASCII"},
	{name: "standard_conforming_strings", value: "off"},
	{name: "backslash_quote", value: "off"},
	{name: "array_nulls", value: "off"},
	{name: "transform_null_equals", value: "on"},
	{name: "quote_all_identifiers", value: "on"},
	{name: "row_security", value: "off", refused: []string{"row-level security"}},
	{name: "session_replication_role", value: "replica", super: true},
	{name: "session_replication_role", value: "local", super: true},
	{name: "plan_cache_mode", value: "force_generic_plan"},
	{name: "plan_cache_mode", value: "force_custom_plan"},
	{name: "enable_indexscan", value: "off"},
	{name: "enable_seqscan", value: "off"},
	{name: "enable_nestloop", value: "off"},
	{name: "enable_hashjoin", value: "off"},
	{name: "enable_sort", value: "off"},
	{name: "enable_material", value: "off"},
	{name: "from_collapse_limit", value: "1"},
	{name: "join_collapse_limit", value: "1"},
	{name: "force_parallel_mode", value: "on"},
	{name: "jit_above_cost", value: "0"},
	{name: "check_function_bodies", value: "off"},
	{name: "client_min_messages", value: "debug5"},
	{name: "client_min_messages", value: "error"},
	{name: "synchronous_commit", value: "off"},
	{name: "exit_on_error", value: "on"},
	{name: "work_mem", value: "64kB"},
	{name: "plpgsql.extra_errors", value: "all"},
	{name: "plpgsql.extra_warnings", value: "all"},
	{name: "plpgsql.variable_conflict", value: "use_variable", super: true},
	{name: "plpgsql.variable_conflict", value: "use_column", super: true},
	{name: "plpgsql.check_asserts", value: "off"},
	{name: "constraint_exclusion", value: "on"},
	{name: "track_activities", value: "off", super: true},
	{name: "xmloption", value: "document"},
	{name: "lc_time", value: "C"},
}

// inText are settings that change how values are read or how names resolve. They are tested in each
// mode of the driver.
var inText = strings.Fields("role search_path bytea_output DateStyle IntervalStyle TimeZone extra_float_digits client_encoding standard_conforming_strings " +
	"backslash_quote array_nulls default_transaction_read_only exit_on_error")

// modes are the driver's query modes. They decide whether values travel as text.
var modes = map[string]pgx.QueryExecMode{
	"":                  pgx.QueryExecModeCacheStatement,
	", cache_describe":  pgx.QueryExecModeCacheDescribe,
	", describe_exec":   pgx.QueryExecModeDescribeExec,
	", exec":            pgx.QueryExecModeExec,
	", simple_protocol": pgx.QueryExecModeSimpleProtocol,
}

// pool returns a pool with such sessions.
func (s session) pool(t *testing.T, admin *pgxpool.Pool, mode pgx.QueryExecMode) *pgxpool.Pool {
	login := "door_login"
	if s.super {
		login = admin.Config().ConnConfig.User
	}
	return as(t, admin, login, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = mode
		if s.role == "" {
			c.ConnConfig.RuntimeParams[s.name] = s.value
			return
		}
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set role "+s.role)
			return err
		}
	})
}

// needs returns the texts of errors with which a door may refuse in a mode of the driver.
func (s session) needs(door, mode string) []string {
	simple, text := mode == ", simple_protocol", mode == ", simple_protocol" || mode == ", exec"
	switch {
	// Its statements resolve through the user's path.
	case strings.HasPrefix(door, "guard") && strings.HasPrefix(s.value, "evil"):
		return []string{"shadowed"}
	case s.name == "DateStyle" && text:
		return []string{"DateStyle"}
	case s.name == "bytea_output" && text:
		return []string{"bytea_output"}
	case (s.name == "client_encoding" || s.name == "standard_conforming_strings") && simple:
		return []string{s.name}
	}
	return s.refused
}

// With any initial session state from its login, pool or URL, each door commits its effect once or
// refuses with an error that names the setting.
func TestDoors_SessionSettings(t *testing.T) {
	t.Parallel()
	all := maps.Clone(doors)
	maps.Copy(all, plain)
	for door, ask := range all {
		t.Run(door, func(t *testing.T) {
			t.Parallel()
			admin := pawltest.DB(t, schema, pawlschema.Roles(), sessionSchema, ownSchema)
			for _, s := range sessions {
				for _, mode := range slices.Sorted(maps.Keys(modes)) {
					name := fmt.Sprint(s, mode)
					if !played(door, name) || oneIn > 1 && !played(name, door) || mode != "" && s.role == "" && !slices.Contains(inText, s.name) {
						continue
					}
					t.Run(name, func(t *testing.T) {
						v := &visit{T: t, pool: s.pool(t, admin, modes[mode]), admin: admin, key: pawl.Key(t.Name())}
						v.do = func(ctx context.Context, exec func(string) error) error {
							v.calls.Add(1)
							return exec("insert into public.effect values ('" + v.key + "', 'a')")
						}
						ask(v)
						v.said = slices.DeleteFunc(v.said, func(err string) bool {
							switch {
							// Its plans are expensive, so the server compiles them (JIT).
							case strings.HasPrefix(s.name, "enable_"):
								return strings.HasPrefix(err, "rollup.add: timeout")
							// A claim that lost a race is retried.
							case s.name == "default_transaction_isolation":
								return strings.Contains(err, "could not serialize access")
							}
							return false
						})
						v.judge(admin, s.needs(door, mode))
						v.clear()
					})
				}
			}
		})
	}
}

// confined has a login that is subject to row level security.
const confined = `
do $$ begin create role door_confined login; exception when duplicate_object or unique_violation then null; end $$;
do $$ begin grant pawl_operator to door_confined; exception when unique_violation or internal_error then null; end $$;
grant all on effect, orders to door_confined;
grant usage on schema evil to door_confined`

// hidePawl enables row level security on each of Pawl's tables, as a platform's event trigger does.
const hidePawl = `do $$ declare t text; begin
  for t in select c.oid::regclass from pg_class as c where c.relnamespace = 'pawl'::regnamespace and c.relkind in ('r', 'p') loop
    execute 'alter table ' || t || ' enable row level security';
  end loop;
end $$`

// hideYours prevents the login from seeing and writing rows of the user's tables.
const hideYours = `drop policy own on effect; alter table orders enable row level security`

// With row level security on Pawl's tables or on the user's own, no door doubles an effect, and
// each error names the reason.
func TestDoors_RowLevelSecurity(t *testing.T) {
	t.Parallel()
	all := maps.Clone(doors)
	maps.Copy(all, plain)
	for what, hide := range map[string]string{"Pawl's tables": hidePawl, "its own tables": hideYours} {
		for door, ask := range all {
			if !played(door, what) {
				continue
			}
			t.Run(what+"/"+door, func(t *testing.T) {
				t.Parallel()
				admin := pawltest.DB(t, schema, pawlschema.Roles(), sessionSchema, confined, hide)
				v := &visit{T: t, pool: as(t, admin, "door_confined", nil), admin: admin, key: "k"}
				v.do = func(ctx context.Context, exec func(string) error) error {
					v.calls.Add(1)
					return exec("insert into public.effect values ('k', 'a')")
				}
				ask(v)
				v.judge(admin, []string{"row level security", "row-level security"})
			})
		}
	}
}

// With any initial session state, a call in the caller's transaction works or is refused with an
// error that names the setting.
func TestCalls_SessionSettings(t *testing.T) {
	t.Parallel()
	admin := pawltest.DB(t, schema, pawlschema.Roles(), sessionSchema, ownSchema)
	for _, s := range sessions {
		for mode, by := range modes {
			// It ends the session between the caller's own statements.
			if mode != "" && !slices.Contains(inText, s.name) || strings.HasPrefix(s.name, "idle") {
				continue
			}
			pool := s.pool(t, admin, by)
			for what, call := range calls {
				t.Run(fmt.Sprint(s, mode, "/", what), func(t *testing.T) {
					err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
						return call(t.Context(), tx, fmt.Sprint(s, mode, what))
					})
					if err != nil && !names([]string{pawl.Wrap("call", err).Error()}, s.needs(what, mode)) {
						t.Error(err)
					}
				})
			}
			pool.Close()
		}
	}
}
