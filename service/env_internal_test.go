package service

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

func TestFromEnv(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://me:secret@localhost/db", "PAWL_SHUTDOWN_TIMEOUT": "40s", "PAWL_STOP_DELAY": "5s",
		"PAWL_STALL_AFTER": "2m", "PAWL_HEALTH_ADDRESS": ":8081", "PAWL_PRESENCE": "off"}
	cfg, err := configFrom(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if cfg.ShutdownTimeout != 40*time.Second || cfg.StopDelay != 5*time.Second || cfg.StallAfter != 2*time.Minute || cfg.HealthAddress != ":8081" ||
		cfg.Presence != (job.Presence{Off: true}) || !cfg.closes {
		t.Errorf("%+v", cfg)
	}
	for name, c := range map[string]struct {
		env  map[string]string
		want int32
	}{
		"default":        {nil, 20},
		"variable":       {map[string]string{"PAWL_MAX_CONNS": "33"}, 33},
		"URL goes first": {map[string]string{"PAWL_MAX_CONNS": "33", "DATABASE_URL": "postgres://localhost/db?pool_max_conns=7"}, 7},
		"not a setting":  {map[string]string{"PAWL_MAX_CONNS": "33", "DATABASE_URL": "postgres://localhost/pool_max_conns"}, 33},
		"keywords":       {map[string]string{"PAWL_MAX_CONNS": "33", "DATABASE_URL": "host=localhost pool_max_conns=7"}, 7},
		"other name":     {map[string]string{"DATABASE_URL": "", "PAWL_DATABASE_URL": "postgres://localhost/db"}, 20},
	} {
		pool, err := poolFrom(t.Context(), func(name string) string {
			if value, set := c.env[name]; set {
				return value
			}
			return env[name]
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := pool.Config().MaxConns; got != c.want {
			t.Errorf("%s: %d connections, want %d", name, got, c.want)
		}
		pool.Close()
	}
}

// An error names the variable and the next step, and shows no password.
func TestFromEnv_Errors(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]string{
		"DATABASE_URL":          {"", "postgres://me:secret@local host/db", "postgres://me:sec/ret@[::1/db"},
		"PAWL_MAX_CONNS":        {"many", "0", "-1"},
		"PAWL_SHUTDOWN_TIMEOUT": {"25", "10ms", "-5s"},
		"PAWL_STOP_DELAY":       {"soon", "-1s"},
		"PAWL_STALL_AFTER":      {"1", "1ms"},
		"PAWL_PRESENCE":         {"postgres://me:secret@local host/db"},
	} {
		for _, value := range values {
			env := func(asked string) string {
				switch asked {
				case name:
					return value
				case "DATABASE_URL":
					return "postgres://localhost/db"
				}
				return ""
			}
			_, err := configFrom(env)
			if err == nil {
				_, err = poolFrom(t.Context(), env)
			}
			if !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "the variable "+name) || strings.Contains(err.Error(), "secret") ||
				!strings.Contains(err.Error(), "(set") {
				t.Errorf("%s=%q: %v", name, value, err)
			}
		}
	}
}
