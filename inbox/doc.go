// Package inbox records which deliveries took effect, for handlers that open their own transaction.
// Use it if another library receives your messages. Package consumer does all this for you, with
// retries and dead letters. Call [Take] first in the transaction that writes the effect:
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		claim, err := inbox.Take(ctx, tx, pawl.Intent{
//			Scope: "payments", Key: messageID, Fingerprint: pawl.FingerprintOf(body)})
//		if err != nil || !claim.Fresh {
//			return err // not fresh: it took effect before
//		}
//		_, err = tx.Exec(ctx, "insert into payment values ($1, $2)", messageID, cents)
//		return err
//	})
//	// If err is nil, acknowledge the message. Otherwise let it come again.
//
// An intent is the thing that must happen once. Its scope is the name of your consumer, its key is
// the same each time the message comes, and its fingerprint is a hash of the payload.
//
//	           Take                    your statements              COMMIT
//	delivery ────────▶ row inserted ──────────────────▶ effect and row together
//	            │
//	            └──▶ the row exists: the delivery took effect before. Acknowledge it.
//
// The row, in table pawl.inbox, exists if and only if the effect committed. If you roll back, the
// next delivery with the key is new.
//
// Rows are not deleted automatically. A program without a consumer deletes old rows with ops.Purge
// or `pawl purge`, and chooses their age.
package inbox
