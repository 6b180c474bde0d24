package lock_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/lock"
	"github.com/pawl-go/pawl/pawltest"
)

// A store is a service with its own database that keeps one body per path. A writer sends the fence
// of its attempt. The store answers 409 to a stale fence.
type store struct{ pool *pgxpool.Pool }

const storeSchema = "create table kept (path text primary key, body text not null)"

func (s store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fence, err := strconv.ParseInt(r.Header.Get(lock.FenceHeader), 10, 64)
	if err != nil || fence < 1 {
		http.Error(w, lock.FenceHeader+" is missing or not a positive number", http.StatusBadRequest)
		return
	}
	// The body is read before the transaction begins, since the caller may be slow.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	err = pgx.BeginFunc(r.Context(), s.pool, func(tx pgx.Tx) error {
		if err := lock.AcceptFence(r.Context(), tx, r.URL.Path, fence); err != nil {
			return err
		}
		_, err := tx.Exec(r.Context(), "insert into kept values ($1, $2) on conflict (path) do update set body = excluded.body", r.URL.Path, string(body))
		return err
	})
	switch {
	case errors.Is(err, pawl.ErrFenceLost):
		http.Error(w, "a newer attempt was here", http.StatusConflict)
	case pawl.Retryable(err):
		http.Error(w, "try again", http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, "cannot write", http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// put writes to the store as an attempt of a job does, with its fence.
func put(url string, fence int64, body string) (status int, err error) {
	r, err := http.NewRequest(http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set(lock.FenceHeader, strconv.FormatInt(fence, 10))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// A service with several writers refuses a stale attempt.
func Example_store() {
	pool, drop := database(storeSchema)
	defer drop()
	server := httptest.NewServer(store{pool})
	defer server.Close()

	fmt.Println(put(server.URL+"/job-17/report", 2, "complete"))
	fmt.Println(put(server.URL+"/job-17/report", 1, "half"))
	// Output:
	// 204 <nil>
	// 409 <nil>
}

// The request of attempt 1 arrives after attempt 2 has written. It changes nothing.
func TestStore_DelayedAttemptIsRefused(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, storeSchema)
	arrived, deliver := make(chan struct{}), make(chan struct{})
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(lock.FenceHeader) == "1" { // the network holds this one back
			close(arrived)
			<-deliver
		}
		store{pool}.ServeHTTP(w, r)
	})
	server := httptest.NewServer(slow)
	defer server.Close()

	late := make(chan int)
	go func() {
		status, err := put(server.URL+"/report", 1, "attempt 1")
		if err != nil {
			t.Error(err)
		}
		late <- status
	}()
	<-arrived
	if status, err := put(server.URL+"/report", 2, "attempt 2"); err != nil || status != http.StatusNoContent {
		t.Errorf("attempt 2: %d, %v", status, err)
	}
	close(deliver)
	if status := <-late; status != http.StatusConflict {
		t.Errorf("the delayed attempt 1: %d, want 409", status)
	}
	var body string
	var fence int64
	err := pool.QueryRow(t.Context(), "select k.body, f.fence from kept as k join pawl.fence as f on f.resource = k.path").Scan(&body, &fence)
	if err != nil || body != "attempt 2" || fence != 2 {
		t.Errorf("kept %q with fence %d, %v", body, fence, err)
	}
	if status, _ := put(server.URL+"/report", 0, "no fence"); status != http.StatusBadRequest {
		t.Errorf("without a fence: %d", status)
	}
}
