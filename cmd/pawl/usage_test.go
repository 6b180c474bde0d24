package main

import (
	"strings"
	"testing"
)

// Help has the promise, the commands, the variable and the exit codes.
func TestHelp_Teaches(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--help"}, {"help"}} {
		r := mustPawl(t, "", args...)
		for _, part := range []string{"exactly one effect out", "takes effect once", "migrate", "webhook", "dev", "version",
			"PAWL_DATABASE_URL", "pawl migrate up", "Exit codes: 0"} {
			if !strings.Contains(r.stdout, part) {
				t.Errorf("pawl %v lacks %q", args, part)
			}
		}
	}
	for _, args := range [][]string{{"migrate"}, {"migrate", "--help"}, {"help", "migrate"}} {
		if r := mustPawl(t, "", args...); !strings.Contains(r.stdout, "check") || r.stderr != "" {
			t.Errorf("pawl %v: %+v", args, r)
		}
	}
}

// Users paste help into tickets, so it must not contain the password of the environment.
func TestHelp_DoesNotPrintTheURL(t *testing.T) {
	t.Parallel()
	r := mustPawl(t, "postgres://u:"+secret+"@h/d", "migrate", "up", "--help")
	if strings.Contains(r.stdout+r.stderr, secret) {
		t.Error(r.stdout)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if r := mustPawl(t, "", "version"); !strings.HasPrefix(r.stdout, "pawl ") || !strings.Contains(r.stdout, "schema 1") {
		t.Errorf("%q", r.stdout)
	}
}

// A wrong command line exits with 2, prints one line with the next step, and connects to no
// database.
func TestUsage_WrongCommandLines(t *testing.T) {
	t.Parallel()
	const unused = "postgres://u:" + secret + "@127.0.0.1:1/d"
	for line, want := range map[string][]string{
		"--bogus":                                   {"unknown flag: --bogus", "pawl --help"},
		"bogus":                                     {`unknown command "bogus"`, "pawl --help"},
		"migrat up --roles":                         {`did you mean "migrate"?`, "pawl --help"},
		"help bogus":                                {`unknown command "bogus"`, "pawl --help"},
		"migrate bogus":                             {`unknown command "bogus"`, "pawl migrate --help"},
		"migrate ups":                               {`did you mean "up"?`},
		"migrate up now":                            {`unexpected argument "now"`, "pawl migrate up --help"},
		"migrate up --bogus":                        {"unknown flag: --bogus", "pawl migrate up --help"},
		"migrate up --database-url":                 {"flag needs an argument", "--help"},
		"migrate down":                              {"--to N"},
		"migrate down --to -1 --yes":                {"--to N"},
		"migrate down --to many":                    {`the value "many" of --to is not a whole number`, "--help"},
		"purge --older-than banana":                 {`the value "banana" of --older-than is not a duration such as 90s, 15m or 24h`, "pawl purge --help"},
		"migrate print --format goose --start 0":    {"--start 0", "one more than the last number"},
		"migrate print --format goose --start -3":   {"--start -3", "one more than the last number"},
		"migrate print --format goose --start many": {`the value "many" of --start is not a whole number`, "--help"},
		"migrate print --format goose --start 2147483647":     {"--start 2147483647 is too large", "one more than the last number"},
		"migrate print --format goose --start 3 --timestamps": {"two ways to number", "pass one of them"},
		"migrate print --start 3":                             {"plain is one script", "--format goose"},
		"migrate print --timestamps":                          {"plain is one script", "--format goose"},
		"migrate print --format tern --timestamps":            {"without gaps", "--start N"},
		"migrate print --roles --start 3":                     {"--roles prints one script", "pawl migrate print --roles"},
		"init a b":                                            {"it takes one directory", "pawl init orders"},
		"init --module ../x x":                                {`module path "../x"`, "--module example.com/orders"},
		"init --source /nowhere x":                            {"/nowhere does not hold the sources", "go.mod"},
		"init x":                                              {"no released version", "--source DIR"},
		"dev postgres --dir x now":                            {`unexpected argument "now"`, "--help"},
		"dev postgres -- true":                                {"the data directory is missing", "--dir"},
		"migrate print --format liquibase":                    {`unknown format "liquibase"`, "plain, goose, tern, golang-migrate"},
		"migrate print --from 99":                             {"leaves nothing to print", "pawl migrate status"},
		"migrate print --from -1":                             {"leaves nothing to print", "pawl migrate status"},
		"migrate print --roles --format goose":                {"one script", "pawl migrate print --roles"},
		"migrate print --format goose --force":                {"add --dir"},
		"demo --messages 0":                                   {"--messages must lie between 1 and", "pawl demo --help"},
		"demo --workers 99":                                   {"--workers must lie between 1 and 32", "pawl demo --help"},
		"demo --kills -1":                                     {"--kills must lie between 0 and", "pawl demo --help"},
		"demo --messages 5 --poison 6":                        {"--poison must lie between 0 and 5", "pawl demo --help"},
		"demo --handler-errors 2":                             {"--handler-errors must lie between 0 and 0.9", "pawl demo --help"},
		"demo --handler-errors NaN":                           {"--handler-errors must lie between 0 and 0.9", "pawl demo --help"},
		"demo --timeout 0s":                                   {"--timeout must lie between 1s and 24h", "pawl demo --help"},
		"demo --messages 1000000 --duplicates 1000":           {"--messages times --duplicates", "pawl demo --help"},
		"demo --lease --kills 2":                              {"--kills does not go with --lease", "pawl demo --help"},
		"demo --watch --messages 100":                         {"--messages does not go with --watch (", "--workers, --rate", "pawl demo --help"},
		"demo --watch --keep":                                 {"--keep does not go with --watch", "pawl demo --help"},
		"lab":                                                 {`did you mean "demo"?`, "pawl --help"},
		"steps list --status refused":                         {`unknown status "refused"`, "failed_final"},
		"demo --bogus":                                        {"unknown flag: --bogus", "pawl demo --help"},
		"demo now":                                            {`unexpected argument "now"`, "pawl demo --help"},
		"demo --database-url=":                                {"--database-url is empty", "leave the flag out"},
		"demo --database-url=mysql://x/y":                     {"--database-url cannot be read", "write postgres://"},
		"demo-worker":                                         {"this command is the demo's own", "run: pawl demo"},
		"dev postgres":                                        {"pass --dir"},
		"dev postgres --dir x --database-url=y --z":           {"unknown flag: --z"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			wantFailure(t, pawl(t, unused, strings.Fields(line)...), 2, want...)
		})
	}
}

// Without a database the error names three ways to give one.
func TestUsage_NoDatabase(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"up", "status", "check", "down --to 0 --yes"} {
		wantFailure(t, pawl(t, "", append([]string{"migrate"}, strings.Fields(verb)...)...), 2,
			"no database", "set PAWL_DATABASE_URL or pass --database-url, or start one with: pawl dev postgres --dir ./pgdata")
	}
}

// An unreadable URL is never printed. The parser takes a password with an unescaped slash for a
// port, and its message would contain it.
func TestUsage_MalformedURL(t *testing.T) {
	t.Parallel()
	for url, why := range map[string]string{
		"postgres://u:" + secret + "/x@h/d":               "",
		"postgres://u:" + secret + "@h:port/d":            "",
		"postgres://u:" + secret + "%zz@h/d":              "",
		"postgres://u:" + secret + "@h/d?sslmode=maybe":   ": sslmode is invalid",
		"postgres://u:" + secret + "@h/d?sslrootcert=/no": ": unable to read CA file: open /no",
		"mysql://u:" + secret + "@h/d":                    "",
		"postgres://u:x@" + secret + "/x@h/d":             ": a second @",
		"postgres://u:x@" + secret + "@h/d":               ": a second @",
		"postgres://u:5432/" + secret + "@h/d":            ": a second @",
		"postgres://u:x@" + secret + "?x@h/d":             ": a second @",
		secret:                                            "",
	} {
		wantFailure(t, pawl(t, url, "migrate", "up"), 2, "PAWL_DATABASE_URL cannot be read"+why, "write postgres://user:password@")
		wantFailure(t, pawl(t, "", "migrate", "up", "--database-url", url), 2, "--database-url cannot be read"+why)
	}
}
