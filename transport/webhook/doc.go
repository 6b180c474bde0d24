// Package webhook receives signed webhooks. It verifies each request, finds the key and fingerprint
// of its delivery, and answers once the outcome is in the database. Use a [Receiver], which is an
// HTTP handler for the sender and the source of a consumer:
//
//	verifier, err := webhook.New(webhook.Config{Scheme: webhook.Stripe(webhook.Secret{Value: secret})})
//	if err != nil {
//		return err
//	}
//	receiver, err := webhook.NewReceiver(verifier, webhook.ReceiverConfig{})
//	if err != nil {
//		return err
//	}
//	mux.Handle("POST /stripe", receiver)
//	c, err := consumer.New(pool, consumer.Config{
//		Name: "stripe", Source: receiver, Handler: consumer.HandleTx(recordPayment)}) // then c.Run(ctx)
//
// A [Scheme] describes how a sender signs: [StandardWebhooks], [Svix], [Stripe], [Mux], [GitHub],
// [Slack], [Shopify], or [HMAC] for others. A [Reconciler] finds deliveries that a sender has sent
// and the inbox does not have. The inbox is the table in which a consumer records keys that took
// effect.
//
//	request ── not POST, encoded, too large, too slow, cut off ──▶ 405, 415, 413, 408, 400
//	   │
//	headers ── missing, repeated, oversized ─────────────────────▶ 401, 431
//	   │
//	signature, over the raw octets, before anything is parsed ───▶ 401
//	   │
//	timestamp, if the scheme signs one, in both directions ──────▶ 401
//	   │
//	Verified: raw body, id, key, time, which secret, allow-listed headers, fingerprint
//	   │
//	Receiver, a source of deliveries for a consumer: claim, handler, COMMIT ── 200
//	   └── not known to be in the database ─────────────────────── 503, with Retry-After
//
// The sender of a refused request gets only a status. The reason is in the [Refusal], for logs.
//
// A verified delivery may be a repetition: senders retry, people press "resend", and within
// [Config.Tolerance] any observer can replay a request. A consumer behind a [Receiver] therefore
// stores [Verified.Key] and [Verified.Fingerprint] in the transaction of the effect. Without one,
// do that yourself ([github.com/pawl-go/pawl/inbox]). GitHub and Shopify sign neither timestamp nor
// id, so their requests can be replayed forever, under any id: see [Verified.IDSigned].
package webhook
