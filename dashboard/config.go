package dashboard

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
)

// Config configures a dashboard.
type Config struct {
	// Pool is the database that pages read. Required. Its login needs the rights of pawl_reader.
	// The dashboard takes at most 4 of its connections at once, each for at most 4 s.
	Pool *pgxpool.Pool
	// Operators executes actions. Its login needs the rights of pawl_operator. It may be the same
	// as Pool. Default nil: the dashboard is read-only for all users.
	Operators *pgxpool.Pool
	// Authorize returns the user of a request and the user's rights. Required. It is called for
	// every request, also for assets. If it returns an error, the dashboard answers 403, or the
	// status of a [Refusal], and logs the error.
	Authorize func(*http.Request) (User, error)
	// Redact returns the form of a payload that may be shown. It is called before a payload is
	// shown to a user with MaySeePayloads. Default: the payload is shown unchanged.
	Redact func(Payload) []byte
	// Name is shown on every page, for example "production". Default: the name of the database.
	Name string
	// Logger receives refused requests, actions, failed reads and which payloads were shown. It
	// never receives a payload. Default: slog.Default().
	Logger *slog.Logger
}

// A User makes a request. Its fields are the user's rights.
type User struct {
	// Name is recorded in the audit with every action: an e-mail address or a login, 1 to 255
	// octets. Required.
	Name string
	// MayChange allows actions, if the dashboard has [Config.Operators].
	MayChange bool
	// MaySeePayloads allows the user to open payloads. The dashboard logs each time.
	MaySeePayloads bool
}

// A Payload is the argument of [Config.Redact].
type Payload struct {
	Queue, Kind string
	JobID       int64
	Body        []byte
}

// A Refusal is an error of [Config.Authorize] that sets the response's status, such as 401 with a
// challenge or 303 to a login page.
type Refusal struct {
	Status int         // 300 to 499
	Header http.Header // added to the response, such as Location or WWW-Authenticate
	Err    error       // logged, not shown; optional
}

func (r *Refusal) Error() string {
	if r.Err == nil {
		return "the request was refused"
	}
	return "the request was refused: " + r.Err.Error()
}

// Unwrap returns Err.
func (r *Refusal) Unwrap() error { return r.Err }

func (c *Config) complete() error {
	refuse := func(why, hint string) error {
		return &pawl.Error{Op: "dashboard.new", Code: pawl.CodeArgumentInvalid, Err: errors.New(why), Hint: hint}
	}
	switch {
	case c.Pool == nil:
		return refuse("the Pool is missing", "pass a pool whose login has the rights of pawl_reader")
	case c.Authorize == nil:
		return refuse("Authorize is missing: everyone who reaches the dashboard could read the keys of your jobs",
			"pass a function that identifies the user of a request, or run the dashboard alone with: pawl dashboard")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return nil
}
