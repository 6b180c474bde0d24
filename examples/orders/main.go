// Command orders is an HTTP server that creates each order once, however often its request arrives.
//
//	go run ./examples/orders
//	curl -i localhost:8080/orders -H 'Idempotency-Key: "17"' -d '{"item":"shoes","count":2}'   # twice
//
// It uses the database in DATABASE_URL, or starts a private one and removes it at the end.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/command/httpkey"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL"), cmp.Or(os.Getenv("LISTEN"), "localhost:8080")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, database, address string) error {
	database, stop, err := prepare(ctx, database)
	if err != nil {
		return err
	}
	defer stop()
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	log.Printf("serving http://%s", listener.Addr())
	return serve(ctx, listener, routes(pool))
}

// routes returns the API.
func routes(pool *pgxpool.Pool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpkey.Once(pool, account, httpkey.Options{Wait: 5 * time.Second}, createOrder))
	return mux
}

// account names the caller. Take yours from your authentication, never from an unverified header.
func account(r *http.Request) (string, error) {
	return cmp.Or(r.Header.Get("X-Account"), "anybody"), nil
}

// createOrder writes an order. The order and the response commit together, and the response is sent
// after that.
func createOrder(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
	var order struct {
		ID    int64  `json:"id"`
		Item  string `json:"item"`
		Count int    `json:"count"`
	}
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil || order.Item == "" {
		http.Error(w, "an order has an item and a count", http.StatusBadRequest)
		return nil
	}
	err := tx.QueryRow(r.Context(), `update stock set left_over = left_over - $2 where item = $1 and left_over >= $2 returning item`,
		order.Item, order.Count).Scan(&order.Item)
	if errors.Is(err, pgx.ErrNoRows) {
		http.Error(w, "not in stock", http.StatusConflict) // stored as the response to this key
		return nil
	}
	if err != nil {
		return err // rolled back; the key can be retried
	}
	err = tx.QueryRow(r.Context(), `insert into orders (item, count) values ($1, $2) returning id`, order.Item, order.Count).Scan(&order.ID)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", order.ID))
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(order)
}

// serve answers until ctx ends, and then lets running requests finish.
func serve(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return server.Shutdown(last)
}
