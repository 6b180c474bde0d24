package pawl

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/watched"
)

// Watching configures [Watch]. The zero value is fit for production.
type Watching struct {
	// CommitTimeout is how long Pawl waits for the reply to COMMIT. After that the outcome is
	// unknown ([ErrCommitUnknown]), and Pawl asks the database. A COMMIT that waits for a
	// synchronous standby is never cancelled; it keeps its connection. If the timeout is too short,
	// Pawl asks about commits that would have been confirmed. If it is too long, a handler and its
	// caller wait while a standby or the network is down. It applies to *pgxpool.Pool; a
	// database/sql COMMIT waits without a limit. Default 15 s.
	CommitTimeout time.Duration
}

// Watch lets Pawl see the server's notices at COMMIT, beside your own callbacks. Call it once,
// before the pool is made and after you set your callbacks:
//
//	config, err := pgxpool.ParseConfig(url)
//	pawl.Watch(config.ConnConfig, pawl.Watching{})
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//
// Use it if the server replicates synchronously (synchronous_standby_names). If an operator cancels
// a COMMIT that waits for its standby, PostgreSQL reports success, with a warning that only a
// callback sees. With Watch the outcome is unknown, and Pawl answers only once the commit is
// replicated. Without Watch, a first answer may be given for a commit that a failover loses.
// Duplicates and replays are safe either way.
//
// Watch covers COMMITs that Pawl sends. Your own tx.Commit on that pool still returns nil. For
// database/sql pass the *pgx.ConnConfig that you give to stdlib.OpenDB.
func Watch(config *pgx.ConnConfig, w Watching) { watched.Install(&config.Config, w.CommitTimeout) }
