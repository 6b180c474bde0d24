// Package inbox remembers which deliveries were seen, for handlers that open their own transaction.
//
//	           Take                    your statements              COMMIT
//	delivery ────────▶ row inserted ──────────────────▶ effect and row together
//	            │
//	            └──▶ the row exists: the delivery took effect before. Acknowledge it.
//
// The row exists if and only if the effect committed. If you roll back, the next delivery with the
// key is new. Package consumer does this for you, with retries and dead letters. Use [Take] if
// another library receives the message.
//
// Rows are not deleted automatically. A program without a consumer deletes old rows with ops.Purge
// or pawl purge, and chooses their age.
package inbox
