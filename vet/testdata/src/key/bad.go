package key

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pawl-go/pawl"
)

func lookup(ctx context.Context, pool *pgxpool.Pool, key string) (body []byte, err error) {
	err = pool.QueryRow(ctx, "SELECT response FROM idempotency_keys WHERE key = $1", key).Scan(&body) // want "by the idempotency key alone"
	return body, err
}

func lookupSQL(ctx context.Context, tx *sql.Tx, key string) (status int, body []byte, err error) {
	const q = `
		SELECT status_code, response_body
		FROM app.idempotent_requests
		WHERE tenant_id = $1 AND idempotency_key = $2`
	err = tx.QueryRowContext(ctx, q, 1, key).Scan(&status, &body) // want "by the idempotency key alone"
	return status, body, err
}

func store(ctx context.Context, tx pgx.Tx, key string, body []byte) error {
	_, err := tx.Exec(ctx, "INSERT INTO request_keys (key, response) VALUES ($1, $2)", key, body) // want "stored under the idempotency key without a hash"
	return err
}

func constant(key string) pawl.Intent {
	return pawl.Intent{Scope: "orders", Key: key, Fingerprint: pawl.FingerprintOf([]byte("order"))} // want "same for every payload"
}

func returning(ctx context.Context, tx pgx.Tx, key string) (body []byte, err error) {
	err = tx.QueryRow(ctx, "INSERT INTO idempotency (key, response) VALUES ($1, '') ON CONFLICT (key) DO UPDATE SET seen = now() RETURNING response", key).Scan(&body) // want "without a hash"
	return body, err
}

func byColumn(ctx context.Context, pool *pgxpool.Pool, key string) (body []byte, err error) {
	err = pool.QueryRow(ctx, "SELECT response_body FROM api_calls WHERE idempotency_key = $1", key).Scan(&body) // want "by the idempotency key alone"
	return body, err
}

func ofKey(key string) pawl.Intent {
	return pawl.Intent{Scope: "orders", Key: key, Fingerprint: pawl.FingerprintOf([]byte(key))} // want "same for every payload"
}
