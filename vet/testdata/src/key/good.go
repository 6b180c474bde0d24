package key

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pawl-go/pawl"
)

var errReused = errors.New("the key was used for another request")

func lookupHashed(ctx context.Context, pool *pgxpool.Pool, key string, request []byte) (body []byte, err error) {
	var stored []byte
	sum := sha256.Sum256(request)
	err = pool.QueryRow(ctx, "SELECT response, request_hash FROM idempotency_records WHERE key = $1", key).Scan(&body, &stored)
	if err == nil && !bytes.Equal(sum[:], stored) {
		return nil, errReused
	}
	return body, err
}

func lookupBoth(ctx context.Context, tx *sql.Tx, key string, sum []byte) (body []byte, err error) {
	err = tx.QueryRowContext(ctx, "SELECT response FROM idempotency_entries WHERE key = $1 AND fingerprint = $2", key, sum).Scan(&body)
	return body, err
}

func storeHashed(ctx context.Context, tx pgx.Tx, key string, sum, body []byte) error {
	_, err := tx.Exec(ctx, "INSERT INTO idempotency_records (key, request_hash, response) VALUES ($1, $2, $3)", key, sum, body)
	return err
}

// A mark has no response.
func mark(ctx context.Context, tx pgx.Tx, key string) error {
	_, err := tx.Exec(ctx, "INSERT INTO idempotency_marks (key, created_at) VALUES ($1, now())", key)
	return err
}

// A response of something else.
func survey(ctx context.Context, pool *pgxpool.Pool, key string) (body []byte, err error) {
	err = pool.QueryRow(ctx, "SELECT response FROM surveys WHERE key = $1", key).Scan(&body)
	return body, err
}

func ofPayload(key string, payload []byte) pawl.Intent {
	return pawl.Intent{Scope: "orders", Key: key, Fingerprint: pawl.FingerprintOf([]byte("order"), payload)}
}

// The row is the thing itself, and not a response.
func byPayment(ctx context.Context, pool *pgxpool.Pool, key string) (id string, err error) {
	err = pool.QueryRow(ctx, "SELECT id FROM payments WHERE idempotency_key = $1", key).Scan(&id)
	return id, err
}

// The key contains the hash.
func lookupByHash(ctx context.Context, pool *pgxpool.Pool, key string, request []byte) (body []byte, err error) {
	sum := sha256.Sum256(request)
	err = pool.QueryRow(ctx, "SELECT response FROM idempotency_sums WHERE key = $1", key+string(sum[:])).Scan(&body)
	return body, err
}
