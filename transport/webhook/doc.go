// Package webhook takes signed webhooks: who sent this request, is it whole, is it of now, under which key is it remembered, and what is its
// sender told.
//
//	request ── not POST, encoded, too large, too slow, cut off ──▶ 405, 415, 413, 408, 400
//	   │
//	headers ── missing, repeated, oversized ─────────────────────▶ 401, 431
//	   │
//	signature, over the raw octets, before anything is parsed ───▶ 401
//	   │
//	timestamp, if the scheme signs one, in both directions ──────▶ 401
//	   │
//	[Verified]: raw body, id, key, time, which secret, allow-listed headers, fingerprint
//
//	   │
//	[Receiver], a source of deliveries for a consumer: claim, handler, COMMIT ── 200
//	   └── nobody knows it to be in the database ────────────────── 503, with Retry-After
//
// A [Reconciler] finds what a sender has sent and nobody remembers.
//
// A [Scheme] says how one sender signs: [StandardWebhooks], [Svix], [Stripe], [Mux], [GitHub], [Slack], [Shopify], or [HMAC]
// for others. The sender of a refused request learns a status and nothing else; why is in the [Refusal], for logs.
//
// Verifying is half of the work. A genuine delivery comes again: senders retry, people press "resend", and within
// [Config.Tolerance] anybody who saw a request can repeat it. A consumer behind a [Receiver] remembers [Verified.Key] with its
// [Verified.Fingerprint] in the transaction of the effect; without one that is yours ([github.com/pawl-go/pawl/inbox]). GitHub and Shopify sign no timestamp and no id, so a request
// once seen can be repeated for ever, under any id: see [Verified.IDSigned].
package webhook
