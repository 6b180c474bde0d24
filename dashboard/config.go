package dashboard

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
)

// Config says what a dashboard shows, and to whom.
type Config struct {
	// Pool is what the pages are read from. Required. Its login needs the rights of pawl_reader. The dashboard takes up to 4 connections of
	// it at once, each for at most 4 seconds.
	Pool *pgxpool.Pool
	// Operators is what actions are executed on. Its login needs the rights of pawl_operator. Default: nil, and the dashboard is read-only
	// for everyone. It may be the same pool as Pool.
	Operators *pgxpool.Pool
	// Authorize says who makes a request, and what that user may do. Required. If it returns an error, the request is answered with 403, or
	// with the status of a [Refusal], and the error is logged. It is called for every request, assets included.
	Authorize func(*http.Request) (User, error)
	// Redact returns a payload as it may be shown. It is called before a payload is shown to a user who may see payloads. Default: the payload
	// is shown as it is.
	Redact func(Payload) []byte
	// Name is shown on every page, as "production". Default: the name of the database.
	Name string
	// Logger receives refused requests, payloads that were shown, actions and failed reads. It never receives a payload. Default:
	// slog.Default().
	Logger *slog.Logger
}

// A User is who makes a request, and what that user may do.
type User struct {
	// Name is written into the audit with every action: an e-mail address or a login, 1 to 255 octets. Required.
	Name string
	// MayChange allows actions, if the dashboard has [Config.Operators].
	MayChange bool
	// MaySeePayloads allows the user to open payloads. Each time that is logged.
	MaySeePayloads bool
}

// A Payload is what [Config.Redact] is asked about.
type Payload struct {
	Queue, Kind string
	JobID       int64
	Body        []byte
}

// A Refusal is an error of [Config.Authorize] with a status of its own, such as 401 with a challenge, or 303 to a login page.
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
