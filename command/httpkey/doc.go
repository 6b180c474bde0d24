// Package httpkey makes HTTP handlers idempotent. A client that sends a request with an
// Idempotency-Key, gets no response and retries gets the first response, byte for byte. If the
// client uses the key for another request, it gets 422.
//
//	request ── bad key, body too large ──────────────────── 400, 413: nothing happened
//	   │
//	 claim ─── payload differs ──────────────────────────── 422
//	   │  ├─── another request holds the key ────────────── 409, Retry-After
//	   │  ├─── answered before ── Authorize ─────────────── the answer, Idempotent-Replayed: true
//	   │  └─── no database ──────────────────────────────── 503: the handler is not called
//	handler, in the transaction of the claim; its response is buffered
//	   ├────── 2xx, 3xx ──── its rows, claim and answer COMMIT together ── then the answer is sent
//	   ├────── 4xx ───────── its rows are rolled back, the answer is stored
//	   └────── 5xx, 408, 425, 429, an error, a panic ── rolled back; the same key may be retried
//
// Use [Once] by default, or [OnceSQL] for database/sql. Use [Leased] for handlers that call other
// systems. [RetryingClient] is the client side.
//
// Other responses are problem documents ([Problem], RFC 9457), each with whether a new key is safe.
//
// The key is that of draft-ietf-httpapi-idempotency-key-header, quoted (RFC 8941) or bare.
package httpkey
