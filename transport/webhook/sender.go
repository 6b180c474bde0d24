package webhook

import (
	"slices"
	"time"
)

// A Sender is what a vendor says about its deliveries, with the page that says so. Vendors change their minds: read the page
// again where it matters.
type Sender struct {
	Name string
	// Retries is how long after the first try the last automatic one may come; 0 if there are none.
	Retries time.Duration
	// Resends is how old a delivery may be that a person has sent again; 0 if the page offers none.
	Resends time.Duration
	// Retention is how long its keys should be remembered: longer than both, and 14 days at least.
	Retention time.Duration
	// Waits is how long it waits for an answer; 0 where that is not known.
	Waits time.Duration
	// Reencoded: its API shows a payload encoded anew, so payloads are compared as canonical JSON.
	Reencoded bool
	// Volatile are the JSON members that the sender changes when it sends again, for [IgnoreFields].
	Volatile []string
	// Page says so, and Read is the day on which its stored copy was read; empty if only accounts of others were.
	Page, Read string
}

const (
	day  = 24 * time.Hour
	read = "2026-11-21"
	// leastRetention of keys, whoever the sender is.
	leastRetention = 14 * day
)

var senders = []Sender{
	{Name: "standard", Retries: 75*time.Hour + 35*time.Minute + 5*time.Second, Retention: leastRetention,
		Page: "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md", Read: read}, // its example of a schedule
	{Name: "svix", Retries: 27*time.Hour + 35*time.Minute + 5*time.Second, Resends: 90 * day, Retention: 91 * day,
		Page: "https://docs.svix.com/retries/ https://docs.svix.com/retention/", Read: read},
	{Name: "stripe", Retries: 3 * day, Resends: 30 * day, Retention: 31 * day, Volatile: []string{"/pending_webhooks"},
		Page: "https://docs.stripe.com/webhooks/process-undelivered-events https://docs.stripe.com/cli/events/resend", Read: read},
	{Name: "mux", Retries: day, Retention: leastRetention, Volatile: []string{"/attempts"},
		Page: "https://mux.com/docs/core/listen-for-webhooks", Read: read},
	{Name: "github", Waits: 10 * time.Second, Reencoded: true, Resends: 7 * day, Retention: leastRetention, // 3 days on github.com, 7 on Enterprise Server
		Page: "https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks/redelivering-webhooks", Read: read},
	{Name: "slack", Waits: 3 * time.Second, Retries: day, Retention: leastRetention, // at once, after 1 and 5 minutes; hourly for a day if delayed events are on
		Page: "https://docs.slack.dev/apis/events-api/"},
	{Name: "shopify", Waits: 5 * time.Second, Retries: 4 * time.Hour, Retention: leastRetention,
		Page: "https://shopify.dev/changelog/updates-to-webhook-retry-mechanism", Read: read},
	{Name: "sns", Retries: time.Hour, Retention: leastRetention, // HTTP and HTTPS endpoints; its envelope only, its signature is not verified here
		Volatile: []string{"/Timestamp", "/Signature", "/SignatureVersion", "/SigningCertURL", "/UnsubscribeURL"},
		Page:     "https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html", Read: read},
}

// Senders returns what is known of each.
func Senders() []Sender {
	all := slices.Clone(senders)
	for i := range all {
		all[i].Volatile = slices.Clone(all[i].Volatile)
	}
	return all
}

// senderNamed returns what is known of a sender; of others, the retention that suits most.
func senderNamed(name string) Sender {
	for _, s := range Senders() {
		if s.Name == name {
			return s
		}
	}
	return Sender{Name: name, Retention: leastRetention}
}
