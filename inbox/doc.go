// Package inbox remembers which deliveries were seen, for handlers that open their own transaction.
//
//	           Take                    your statements              COMMIT
//	delivery ────────▶ row inserted ──────────────────▶ effect and row together
//	            │
//	            └──▶ the row exists: the delivery took effect before. Acknowledge it.
//
// The row exists if and only if the effect committed. If you roll back, the next delivery with the key is new. Package consumer does this for
// you, with retries and dead letters; use [Take] where another library receives the message.
//
// [Retention] says how long deliveries are remembered. Rows are never forgotten before that; ops.Purge and pawl purge delete them for
// programs without a consumer.
package inbox
