package guard

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/internal/verdict"
)

// None as a column name means that the table lacks the column.
const None = "-"

// A Table maps your table. An empty name selects the default; [None] means no such column.
type Table struct {
	Name string // "orders" or "shop.orders"; required

	ID          string // of any type; default "id"
	Status      string // text or an enum; default "status"
	Result      string // the result of the work; default None
	CompletedAt string // timestamptz; default "completed_at"
	// ClaimedAt is the timestamptz of the last attempt and the claim's token. [Rows.Claim] needs
	// it. Default "claimed_at".
	ClaimedAt    string
	LastError    string // text; a [Sweeper] needs it; default "last_error"
	AttemptCount string // integer, not null; a [Sweeper] needs it; default "attempt_count"
	// CreatedAt is a timestamptz. Default None.
	CreatedAt string
	// Monotone, without CreatedAt, is a column that only grows and dates rows. Default None: a
	// row whose message was lost before its first claim then looks like a new one.
	Monotone string

	Pending    string // the four values of Status; default "pending"
	Processing string // default "processing"
	Completed  string // default "completed"
	Error      string // default "error"
}

// Rows guards the work on the rows of one table. It is safe for concurrent use.
type Rows struct {
	pool   *pgxpool.Pool
	table  Table
	sql    statements
	swept  sweepers
	losses verdict.Losses[string] // by the row's id as the database prints it: equal for equal ids
}

// New checks the mapping and fills in the defaults. It does not query the database.
//
// Errors: [pawl.ErrArgumentInvalid] if the pool, the Name, the ID or the Status is missing, or if
// two of the four values of Status are equal.
func New(pool *pgxpool.Pool, t Table) (*Rows, error) {
	if pool == nil {
		return nil, &pawl.Error{Op: "guard.new", Code: pawl.CodeArgumentInvalid, Err: errors.New("the pool is missing")}
	}
	for field, fallback := range map[*string]string{
		&t.ID: "id", &t.Status: "status", &t.Result: None, &t.CompletedAt: "completed_at", &t.ClaimedAt: "claimed_at",
		&t.LastError: "last_error", &t.AttemptCount: "attempt_count", &t.CreatedAt: None, &t.Monotone: None,
		&t.Pending: "pending", &t.Processing: "processing", &t.Completed: "completed", &t.Error: "error",
	} {
		if *field == "" {
			*field = fallback
		}
	}
	if err := t.check(); err != nil {
		return nil, &pawl.Error{Op: "guard.new", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	return &Rows{pool: pool, table: t, sql: t.statements()}, nil
}

// Table returns the mapping with its defaults.
func (r *Rows) Table() Table { return r.table }

func (t Table) check() error {
	if t.Name == "" || t.ID == None || t.Status == None {
		return errors.New("the Name, the ID and the Status of the table are required")
	}
	states := map[string]bool{t.Pending: true, t.Processing: true, t.Completed: true, t.Error: true}
	if len(states) != 4 {
		return errors.New("the four states must differ")
	}
	return nil
}

// stored returns the text of an error for its row: at most 4,000 characters, without NUL. If the
// error is final, it begins with finalMark.
func stored(err error) string {
	why := err.Error()
	if pawl.IsFinal(err) && !strings.HasPrefix(why, finalMark) {
		why = finalMark + why
	}
	return text.Characters(why, 4000)
}

// finalMark begins the error of a row that is not retried.
const finalMark = "final: "
