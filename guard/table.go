package guard

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/internal/verdict"
)

// None stands for a column that a table does not have.
const None = "-"

// A Table says where a table of yours keeps what its rows are at. It needs no column of Pawl's; an empty name is the default, and
// [None] says that there is no such column.
type Table struct {
	Name string // "orders" or "shop.orders"; required

	ID           string // of any type; default "id"
	Status       string // text or an enum; default "status"
	Result       string // what the work returned; default None
	CompletedAt  string // timestamptz; default "completed_at"
	ClaimedAt    string // timestamptz, of the last attempt: who has claimed the row, and how long ago; default "claimed_at"
	LastError    string // text; default "last_error"
	AttemptCount string // integer, not null; default "attempt_count"
	CreatedAt    string // timestamptz; default None. Without it, a row whose message was lost before the first claim looks like a fresh one
	Monotone     string // without CreatedAt: a column that only grows, such as a serial id; a [Sweeper] dates rows by it. Default None

	Pending    string // the four states, in Status; default "pending"
	Processing string // default "processing"
	Completed  string // default "completed"
	Error      string // default "error"
}

// Rows guards the work on the rows of one table. All its methods may be called at once.
type Rows struct {
	pool   *pgxpool.Pool
	table  Table
	sql    statements
	swept  sweepers
	losses verdict.Losses[string] // of rows, by the text of their id
}

// New checks the mapping, without asking the database, and completes it.
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

// stored is an error as a row keeps it: at most 4,000 characters, without NUL, and marked if no retry can help.
func stored(err error) string {
	why := err.Error()
	if pawl.IsFinal(err) && !strings.HasPrefix(why, finalMark) {
		why = finalMark + why
	}
	return text.Characters(why, 4000)
}

// finalMark begins the error of a row that is not driven again.
const finalMark = "final: "
