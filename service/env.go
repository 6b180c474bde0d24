package service

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// usualConns is the default size of the pool. pgx's default, the number of processors, fits one
// small part.
const usualConns = 20

// FromEnv makes a pool and a configuration from the environment. It opens no connection. [App.Run]
// closes the pool when all parts have ended. Do not close it yourself: Close waits for abandoned
// handlers.
//
//	DATABASE_URL           required (or PAWL_DATABASE_URL): a URL or keywords, as pgx takes them
//	PAWL_MAX_CONNS         the size of the pool, unless the URL has pool_max_conns. Default 20
//	PAWL_PRESENCE          "off", or the URL of a direct connection, if DATABASE_URL goes
//	                       through a pooler in transaction mode
//	PAWL_SHUTDOWN_TIMEOUT  a duration such as 25s: [Config].ShutdownTimeout
//	PAWL_STOP_DELAY        a duration such as 5s: [Config].StopDelay
//	PAWL_STALL_AFTER       a duration such as 1m: [Config].StallAfter
//	PAWL_HEALTH_ADDRESS    for instance :8081: [Config].HealthAddress
//
// Errors: [pawl.ErrArgumentInvalid], with the variable and the next step. They never show the value
// of DATABASE_URL.
func FromEnv(ctx context.Context) (*pgxpool.Pool, Config, error) {
	cfg, err := configFrom(os.Getenv)
	if err != nil {
		return nil, Config{}, err
	}
	pool, err := poolFrom(ctx, os.Getenv)
	return pool, cfg, err
}

func configFrom(env func(string) string) (cfg Config, err error) {
	for name, field := range map[string]*time.Duration{"PAWL_SHUTDOWN_TIMEOUT": &cfg.ShutdownTimeout, "PAWL_STOP_DELAY": &cfg.StopDelay,
		"PAWL_STALL_AFTER": &cfg.StallAfter} {
		text := env(name)
		if text == "" {
			continue
		}
		if *field, err = time.ParseDuration(text); err != nil {
			return cfg, wrong(name, fmt.Sprintf("is %q", text), "set a duration such as 25s")
		}
		tried := Config{ShutdownTimeout: cfg.ShutdownTimeout, StopDelay: cfg.StopDelay, StallAfter: cfg.StallAfter}
		if err := tried.complete(); err != nil {
			return cfg, wrong(name, fmt.Sprintf("is %q: %v", text, err), "set a duration such as 25s")
		}
	}
	switch presence := env("PAWL_PRESENCE"); {
	case presence == "":
	case strings.EqualFold(presence, "off"):
		cfg.Presence = job.Presence{Off: true}
	default:
		if _, err := pgxpool.ParseConfig(presence); err != nil {
			return cfg, wrong("PAWL_PRESENCE", "is neither off nor the URL of a database", "set off, or postgres://user:password@host:5432/database")
		}
		cfg.Presence = job.Presence{URL: presence}
	}
	cfg.HealthAddress, cfg.closes = env("PAWL_HEALTH_ADDRESS"), true
	return cfg, nil
}

func poolFrom(ctx context.Context, env func(string) string) (*pgxpool.Pool, error) {
	name := "DATABASE_URL"
	if env(name) == "" && env("PAWL_DATABASE_URL") != "" {
		name = "PAWL_DATABASE_URL"
	}
	url := env(name)
	if url == "" {
		return nil, wrong(name, "is not set, nor is PAWL_DATABASE_URL", "set one of them to postgres://user:password@host:5432/database; pawl dev postgres starts a server and prints its URL")
	}
	settings, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, wrong(name, "cannot be read", "set it to postgres://user:password@host:5432/database, with special characters in the password escaped as %40")
	}
	if !saysMaxConns(url) {
		text := cmp.Or(env("PAWL_MAX_CONNS"), strconv.Itoa(usualConns))
		conns, err := strconv.ParseInt(text, 10, 32)
		if err != nil || conns < 1 {
			return nil, wrong("PAWL_MAX_CONNS", fmt.Sprintf("is %q", text), "set a number of connections such as 20")
		}
		settings.MaxConns = int32(conns)
	}
	pawl.Watch(settings.ConnConfig, pawl.Watching{})
	return pgxpool.NewWithConfig(ctx, settings)
}

// saysMaxConns reports whether a valid URL has the setting pool_max_conns.
func saysMaxConns(url string) bool {
	settings, err := pgx.ParseConfig(url)
	return err == nil && settings.RuntimeParams["pool_max_conns"] != ""
}

// wrong returns the error of a variable with the next step. It shows no value that may hold a
// password.
func wrong(variable, what, next string) error {
	return &pawl.Error{Op: "service.env", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("the variable %s %s", variable, what), Hint: next}
}
