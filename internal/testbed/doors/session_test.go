package doors_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/lock"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	pawlschema "github.com/pawl-go/pawl/schema"
)

// sessionSchema has a production-like login that owns its tables, a tenant role confined by row
// level security, and a schema whose names shadow those of pg_catalog.
const sessionSchema = `
do $$ begin create role door_login login; exception when duplicate_object or unique_violation then null; end $$;
do $$ begin create role door_tenant nologin; exception when duplicate_object or unique_violation then null; end $$;
do $$ begin grant pawl_operator, door_tenant to door_login; exception when unique_violation or internal_error then null; end $$;
grant all on effect, orders to door_login;
grant insert on effect to door_tenant;
alter table effect enable row level security;
create policy own on effect using (true) with check (part <> 'another tenant');
create function become(r text) returns text language plpgsql as $$ begin return set_config('role', r, true); end $$;
create schema evil;
grant usage on schema evil to public;
create table evil.effect as select 1 as a; create table evil.job as select 1 as a; create table evil.inbox as select 1 as a; create table evil.command as select 1 as a;
create function evil.set_config(text, text, boolean) returns text language plpgsql as $$ begin raise 'shadowed'; end $$;
create function evil.current_setting(text) returns text language plpgsql as $$ begin raise 'shadowed'; end $$;
create function evil.current_setting(text, boolean) returns text language plpgsql as $$ begin raise 'shadowed'; end $$;
create function evil.now() returns timestamptz language plpgsql as $$ begin raise 'shadowed'; end $$;
create function evil.clock_timestamp() returns timestamptz language plpgsql as $$ begin raise 'shadowed'; end $$;
create function evil.wrong(text, text) returns boolean language plpgsql as $$ begin raise 'shadowed'; end $$;
create function evil.wrong(bigint, bigint) returns boolean language plpgsql as $$ begin raise 'shadowed'; end $$;
create operator evil.= (leftarg = text, rightarg = text, function = evil.wrong);
create operator evil.= (leftarg = bigint, rightarg = bigint, function = evil.wrong);
create operator evil.<> (leftarg = text, rightarg = text, function = evil.wrong)`

// A setting is changed by a handler around its row.
type setting struct {
	before, after string
	super         bool     // the login must be a superuser
	refused       []string // texts of errors with which the handler may fail; nil: each door works
}

var settings = map[string]setting{
	"role":                           {before: "set local role door_tenant"},
	"role, for the session":          {before: "set role door_tenant"},
	"role, by set_config":            {before: "select set_config('role', 'door_tenant', true)"},
	"role, set_config, session":      {before: "select set_config('role', 'door_tenant', false)"},
	"role, by a function":            {before: "select become('door_tenant')"},
	"role, after":                    {after: "set local role door_tenant"},
	"role, in a DO block":            {before: "do $$ begin set local role door_tenant; end $$"},
	"role, and the search path":      {before: "set local role door_tenant", after: "set local search_path = evil, pg_catalog"},
	"session authorization":          {before: "set local session authorization door_tenant", super: true},
	"session authorization, session": {before: "set session authorization door_tenant", super: true},
	"read-only":                      {after: "set transaction read only", refused: []string{"transaction_read_only"}},
	"read-only, by name":             {after: "set local transaction_read_only = on", refused: []string{"transaction_read_only"}},
	"read-only, before":              {before: "set transaction read only", refused: []string{"read-only"}},
	"read-only, for the session":     {after: "set default_transaction_read_only = on"},
	// The timeout may cancel the next message.
	"statement_timeout":            {after: "set local statement_timeout = '1ms'", refused: []string{"statement timeout", "canceling statement due to user request"}},
	"statement_timeout, session":   {after: "set statement_timeout = '1ms'", refused: []string{"statement timeout", "canceling statement due to user request"}},
	"lock_timeout":                 {after: "set local lock_timeout = '1ms'"},
	"idle_in_transaction":          {after: "set local idle_in_transaction_session_timeout = '1ms'", refused: []string{"idle_in_transaction_session_timeout", "idle-in-transaction timeout"}},
	"search_path":                  {after: "set local search_path = evil, pg_catalog"},
	"search_path, for the session": {after: "set search_path = evil, pg_catalog"},
	"bytea_output":                 {after: "set local bytea_output = escape"},
	"DateStyle":                    {after: "set local DateStyle = 'SQL, DMY'"},
	"IntervalStyle":                {after: "set local IntervalStyle = sql_standard"},
	"TimeZone":                     {after: "set local TimeZone = 'America/St_Johns'"},
	"client_encoding":              {after: "set local client_encoding = LATIN1"},
	"standard_conforming_strings":  {after: "set local standard_conforming_strings = off"},
	"extra_float_digits":           {after: "set local extra_float_digits = -15"},
	"row_security":                 {after: "set local row_security = off"},
	"session_replication_role":     {after: "set local session_replication_role = replica", super: true},
	"isolation":                    {after: "set default_transaction_isolation = serializable"},
	"reset all":                    {after: "reset all"},
}

// as returns a pool of another login.
func as(t *testing.T, pool *pgxpool.Pool, login string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config := pool.Config()
	config.ConnConfig.User = login
	if change != nil {
		change(config)
	}
	other, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	return other
}

// names reports whether an error contains one of the settings.
func names(said, settings []string) bool {
	return slices.ContainsFunc(said, func(err string) bool {
		return slices.ContainsFunc(settings, func(name string) bool { return strings.Contains(err, name) })
	})
}

// judge requires one effect without an error, or no effect and an error that names a setting.
func (v *visit) judge(admin *pgxpool.Pool, refused []string) {
	v.Helper()
	var effects int
	if err := admin.QueryRow(v.Context(), "select count(*) from effect where key = $1", v.key).Scan(&effects); err != nil {
		v.Fatal(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	// The visit retried.
	v.said = slices.DeleteFunc(v.said, func(err string) bool { return strings.HasPrefix(err, "guard.claim: P4040") && effects == 1 })
	switch {
	case effects == 1 && len(v.said) == 0:
	case effects > 1 && !v.repeats, refused == nil, effects == 0 && !names(v.said, refused):
		v.Errorf("%d effects of %d calls; told: %q", effects, v.calls.Load(), v.said)
	}
}

// With any setting of a handler in its transaction, each door commits its effect or refuses with an
// error that names the setting. The handler's role needs no privileges on Pawl's objects.
func TestDoors_HandlerSettings(t *testing.T) {
	t.Parallel()
	all := maps.Clone(doors)
	maps.Copy(all, plain)
	for door, ask := range all {
		t.Run(door, func(t *testing.T) {
			t.Parallel()
			admin := pawltest.DB(t, schema, pawlschema.Roles(), sessionSchema)
			login := as(t, admin, "door_login", nil)
			for name, set := range settings {
				if name != "role" && !played(door, name) {
					continue
				}
				// Its pool keeps the role, and the relay retries only every 20 s.
				if door == "outbox" && strings.HasSuffix(name, "session") {
					continue
				}
				t.Run(name, func(t *testing.T) {
					pool := login
					if set.super {
						pool = admin
					}
					v := &visit{T: t, pool: pool, key: pawl.Key(t.Name())}
					if plain[door] != nil { // the handler's session settings stay in its pool
						v.pool, v.admin = as(t, admin, pool.Config().ConnConfig.User, nil), admin
						defer v.clear()
						set.refused = append([]string{"SET ROLE", "row-level security"}, set.refused...)
					}
					v.do = func(ctx context.Context, exec func(string) error) error {
						v.calls.Add(1)
						for _, text := range []string{set.before, "insert into public.effect values ('" + v.key + "', 'a')", set.after} {
							if text == "" {
								continue
							}
							if err := exec(text); err != nil {
								return err
							}
						}
						return nil
					}
					ask(v)
					v.judge(admin, set.refused)
				})
			}
		})
	}
}

// calls are the functions that run in the caller's transaction.
var calls = map[string]func(ctx context.Context, tx pgx.Tx, key string) error{
	"job.Enqueue": func(ctx context.Context, tx pgx.Tx, key string) error {
		return second(job.Enqueue(ctx, tx, job.Request{Queue: "q", Kind: "k", Payload: []byte(key)}))
	},
	"outbox.Append": func(ctx context.Context, tx pgx.Tx, key string) error {
		return second(outbox.Append(ctx, tx, outbox.Event{Type: "t", AggregateType: "a", AggregateID: key, Payload: []byte("{}")}))
	},
	"lock.TryLock": func(ctx context.Context, tx pgx.Tx, key string) error { return second(lock.TryLock(ctx, tx, "n", key)) },
	"SQL": func(ctx context.Context, tx pgx.Tx, key string) error {
		_, err := tx.Exec(ctx, "select * from pawl_v1.job_enqueue('q', 'k', $1)", []byte(key))
		return pawl.Wrap("sql", err)
	},
}

// With any setting of a caller in its transaction, calls of Pawl work or are refused with an error
// that names the setting.
func TestCalls_CallerSettings(t *testing.T) {
	t.Parallel()
	admin := pawltest.DB(t, schema, pawlschema.Roles(), sessionSchema)
	login := as(t, admin, "door_login", nil)
	for name, set := range settings {
		// It ends the session between the caller's own statements.
		if strings.HasPrefix(name, "idle") {
			continue
		}
		for what, call := range calls {
			t.Run(what+"/"+name, func(t *testing.T) {
				pool := login
				if set.super {
					pool = admin
				}
				refused := set.refused
				if strings.Contains(name, "role") || strings.Contains(name, "authorization") {
					refused = []string{"SET ROLE"}
				}
				if strings.Contains(name, "read-only") {
					refused = []string{"read-only"}
				}
				conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close(context.Background())
				err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					for _, text := range []string{set.before, set.after} {
						if _, err := tx.Exec(t.Context(), text); err != nil {
							return err
						}
					}
					return call(t.Context(), tx, fmt.Sprintf("%s %s", what, name))
				})
				if err != nil && !names([]string{err.Error()}, refused) {
					t.Error(err)
				}
			})
		}
	}
}
