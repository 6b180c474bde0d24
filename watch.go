package pawl

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/watched"
)

// Watching is how connections are watched. The zero value is fit for production.
type Watching struct {
	// CommitTimeout is how long the reply to COMMIT is waited for. After that the outcome is unknown ([ErrCommitUnknown]) and is
	// asked for; a COMMIT that waits for a synchronous standby is never cancelled, it keeps its connection until the standby has it.
	// Too short asks about commits that would have been answered; too long holds a handler and its caller while a standby, or
	// the network, is away. It holds for *pgxpool.Pool; a database/sql COMMIT waits without a limit. Default 15 s.
	CommitTimeout time.Duration
}

// Watch lets Pawl hear what the server says at COMMIT, through the callbacks of a configuration; yours are called as before. Call
// it before the pool is made, once, and after you have set your own callbacks:
//
//	config, err := pgxpool.ParseConfig(url)
//	pawl.Watch(config.ConnConfig, pawl.Watching{})
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//
// It is needed where the server replicates synchronously (synchronous_standby_names). If an
// operator cancels a COMMIT that waits for its standby, PostgreSQL answers success, with a warning
// that only a callback sees. With Watch that is an unknown outcome, which is asked for, and
// answered only once it is replicated. Without it the first answer may be given for a commit that a
// failover loses; duplicates and replays are safe either way. It holds for COMMITs that Pawl sends:
// your own tx.Commit on that pool still returns nil. For database/sql pass the *pgx.ConnConfig that
// goes to stdlib.OpenDB.
func Watch(config *pgx.ConnConfig, w Watching) { watched.Install(&config.Config, w.CommitTimeout) }
