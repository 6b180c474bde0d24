// Package httpkey is the HTTP door of package command: a caller that sends a request with an Idempotency-Key, hears nothing and
// sends it again gets the first answer, byte for byte; one that uses the key for something else is told so.
//
//	request ── bad key, body too large ──────────────────── 400, 413: nothing happened
//	   │
//	 claim ─── payload differs ──────────────────────────── 422
//	   │  ├─── somebody is at it ────────────────────────── 409, Retry-After
//	   │  ├─── answered before ── Authorize ─────────────── the stored answer, Idempotent-Replayed: true
//	   │  └─── no database ──────────────────────────────── 503: the handler is not entered
//	handler, in the transaction of the claim; what it answers is kept back
//	   ├────── 2xx, 3xx ──── its rows, claim and answer COMMIT together ── then the answer is sent
//	   ├────── 4xx ───────── its rows are rolled back, the answer is stored
//	   └────── 5xx, 408, 425, 429, an error, a panic ── rolled back; the same key may be tried again
//
// [Once] is the form to use, [OnceSQL] the same for database/sql. [Leased] is for handlers that must call outside. [RetryingClient]
// is the other side.
//
// Responses of our own making are problem documents ([Problem], RFC 9457), each with whether a new key is safe.
//
// The key is that of draft-ietf-httpapi-idempotency-key-header: a quoted string (RFC 8941), or the bare characters.
package httpkey
