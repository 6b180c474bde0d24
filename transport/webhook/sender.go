package webhook

import (
	"slices"
	"time"
)

// A Sender is what a vendor documents about its deliveries, with the page. Vendors change these
// values: check the page if they matter to you.
type Sender struct {
	Name string
	// Retries is the time from the first attempt to the last automatic retry; 0 without retries.
	Retries time.Duration
	// Resends is how old a delivery may be that a person resends; 0 if the page offers none.
	Resends time.Duration
	// Retention is how long to remember keys: longer than both, and at least 14 days.
	Retention time.Duration
	// Waits is the sender's response timeout; 0 if unknown.
	Waits time.Duration
	// Reencoded: the sender's API re-encodes payloads, so payloads are compared as canonical JSON.
	Reencoded bool
	// Volatile are JSON members that the sender changes on a retry, for [IgnoreFields].
	Volatile []string
	// Page is the source. Read is when its stored copy was read; "" if only others' accounts were.
	Page, Read string
}

const (
	day  = 24 * time.Hour
	read = "2026-11-21"
	// leastRetention is the minimum for every sender.
	leastRetention = 14 * day
)

var senders = []Sender{
	{Name: "standard", Retries: 75*time.Hour + 35*time.Minute + 5*time.Second, Retention: leastRetention,
		// Retries is the example schedule of the page.
		Page: "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md", Read: read},
	{Name: "svix", Retries: 27*time.Hour + 35*time.Minute + 5*time.Second, Resends: 90 * day, Retention: 91 * day,
		Page: "https://docs.svix.com/retries/ https://docs.svix.com/retention/", Read: read},
	{Name: "stripe", Retries: 3 * day, Resends: 30 * day, Retention: 31 * day, Volatile: []string{"/pending_webhooks"},
		Page: "https://docs.stripe.com/webhooks/process-undelivered-events https://docs.stripe.com/cli/events/resend", Read: read},
	{Name: "mux", Retries: day, Retention: leastRetention, Volatile: []string{"/attempts"},
		Page: "https://mux.com/docs/core/listen-for-webhooks", Read: read},
	// 3 days on github.com, 7 on Enterprise Server.
	{Name: "github", Waits: 10 * time.Second, Reencoded: true, Resends: 7 * day, Retention: leastRetention,
		Page: "https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks/redelivering-webhooks", Read: read},
	// At once, after 1 and 5 minutes; hourly for a day if delayed events are on.
	{Name: "slack", Waits: 3 * time.Second, Retries: day, Retention: leastRetention,
		Page: "https://docs.slack.dev/apis/events-api/"},
	{Name: "shopify", Waits: 5 * time.Second, Retries: 4 * time.Hour, Retention: leastRetention,
		Page: "https://shopify.dev/changelog/updates-to-webhook-retry-mechanism", Read: read},
	// HTTP and HTTPS endpoints. Only the envelope; SNS signatures are not verified here.
	{Name: "sns", Retries: time.Hour, Retention: leastRetention,
		Volatile: []string{"/Timestamp", "/Signature", "/SignatureVersion", "/SigningCertURL", "/UnsubscribeURL"},
		Page:     "https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html", Read: read},
}

// Senders returns all known senders.
func Senders() []Sender {
	all := slices.Clone(senders)
	for i := range all {
		all[i].Volatile = slices.Clone(all[i].Volatile)
	}
	return all
}

// senderNamed returns a known sender, or one with the default retention.
func senderNamed(name string) Sender {
	for _, s := range Senders() {
		if s.Name == name {
			return s
		}
	}
	return Sender{Name: name, Retention: leastRetention}
}
