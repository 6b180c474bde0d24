// Package httpkey makes HTTP handlers idempotent. A client sends a request with an Idempotency-Key.
// If it gets no response, it retries with the same key, and gets the first response: the same
// status and body, and the stored headers. Use it for requests that must not take effect twice,
// such as orders:
//
//	tenant := func(r *http.Request) (string, error) { return accountOf(r) } // of your authentication
//	mux.Handle("POST /orders", httpkey.Once(pool, tenant, httpkey.Options{},
//		func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
//			var id int64
//			err := tx.QueryRow(r.Context(), "insert into orders default values returning id").Scan(&id)
//			if err != nil {
//				return err
//			}
//			w.WriteHeader(http.StatusCreated)
//			_, err = fmt.Fprintf(w, "order %d", id)
//			return err
//		}))
//
// Use [Once] by default, or [OnceSQL] for database/sql. [JSON] decodes and encodes for both. Use
// [Leased] for handlers that call other systems. [RetryingClient] is the client side. If a client
// uses a key for a different request, it gets 422. [Options].MaxResponse bounds the body that is
// stored.
//
// A request to a handler of [Once], with the default options:
//
//	request ── no tenant; bad key; body too large ───────── 403; 400; 413: nothing happened
//	   │
//	 claim ─── method, path, query or body differs ──────── 422
//	   │  ├─── a request with the key is running ────────── 409, Retry-After
//	   │  ├─── answered before ── Authorize ─────────────── the answer, Idempotent-Replayed: true
//	   │  └─── no database ──────────────────────────────── 503: the handler is not called
//	handler, in the transaction of the claim; its response is buffered
//	   ├────── 2xx, 3xx ──── its rows, claim and answer COMMIT together ── then the answer is sent
//	   ├────── 4xx ───────── its rows are rolled back, the answer is stored
//	   └────── 5xx, 408, 425, 429, an error, a panic ── rolled back; the same key may be retried
//
// Responses that do not come from the handler are problem documents ([Problem], RFC 9457). Each
// says whether the client may send the request again with a new key.
//
// The header is that of draft-ietf-httpapi-idempotency-key-header, a quoted string (RFC 8941). A
// bare value is accepted too.
package httpkey
