package conns

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
)

// Direct opens a connection beside the pool, for presence and for queries that must not wait for
// the pool. It connects as the pool does, including BeforeConnect, or to url if url is not empty.
func Direct(ctx context.Context, pool *pgxpool.Pool, url string) (*pgx.Conn, error) {
	if url != "" {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			return nil, errors.Join(errors.New("the Presence.URL cannot be read"), err)
		}
		pawl.Watch(config, pawl.Watching{})
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return nil, errors.Join(errors.New("the Presence.URL cannot be reached"), err)
		}
		return conn, nil
	}
	settings := pool.Config()
	config := settings.ConnConfig.Copy()
	if settings.BeforeConnect != nil {
		if err := callback.Do("BeforeConnect", func() error { return settings.BeforeConnect(ctx, config) }); err != nil {
			return nil, err
		}
	}
	// Waits for notifications are cancelled all the time. A handler that sends a cancel request
	// each time could cancel the next statement instead.
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}
	}
	pawl.Watch(config, pawl.Watching{})
	return pgx.ConnectConfig(ctx, config)
}
