package step

import (
	"slices"
	"time"
)

// A Provider holds what a vendor documents about repeated requests, to choose a recovery.
type Provider struct {
	Name string // for [Step.Provider]
	// Header carries the key, for [Transport.Header]; "-" if the body does, or there is none.
	Header string
	// Field is the field of the body that carries the key, if no header does.
	Field string
	// MaxKey is the longest key in characters, 0 if not documented. A derived key has 36.
	MaxKey int
	// Memory is how long the vendor documents to remember a key. If it is 0, none is documented or
	// there are no keys: use [Checked], [AtMostOnce] or [AcceptDuplicates].
	Memory time.Duration
	// Note has other relevant facts, and what was not found.
	Note string
	// Page is the vendor's page, as it was on the date Read.
	Page string
	Read string // a date, 2006-01-02
}

// Recovery returns [Keyed] with the documented memory. If none is documented, ok is false.
func (p Provider) Recovery() (recovery Recovery, ok bool) {
	if p.Memory == 0 {
		return Recovery{}, false
	}
	return Keyed(p.Memory), true
}

// ProviderNamed returns a provider by its name.
func ProviderNamed(name string) (p Provider, ok bool) {
	n := slices.IndexFunc(Providers(), func(p Provider) bool { return p.Name == name })
	if n < 0 {
		return Provider{}, false
	}
	return Providers()[n], true
}

// Providers returns what some vendors document. Pages change: read them before you rely on it.
func Providers() []Provider {
	const read = "2026-11-21"
	return []Provider{
		{Name: "adyen", Header: "Idempotency-Key", MaxKey: 64, Memory: 24 * time.Hour,
			Note: "an older copy of the page says at least 31 days; in the newest copy that could be read the length was not found, so a day is relied on. " +
				"Regional endpoints do not share keys. Anyone of the company account who knows a key reads its answer: prefer a random Key if that matters",
			Page: "https://docs.adyen.com/development-resources/api-idempotency", Read: read},
		{Name: "brevo", Header: "-", Field: "headers.idempotencyKey", Memory: 15 * time.Minute,
			Note: "a repeat is refused with duplicate_parameter: it was executed before, so return a value and not Refused. The key must be a UUID. " +
				"The page on batches says 30 minutes, the changelog that introduced it 15",
			Page: "https://developers.brevo.com/docs/heterogenous-versions-batch-emails", Read: read},
		{Name: "paypal", Header: "PayPal-Request-Id", MaxKey: 108, Memory: 6 * time.Hour,
			Note: "of Orders v2: 6 hours, up to 72 on request. Other APIs differ, and not all take the header: see the reference of yours",
			Page: "https://developer.paypal.com/api/orders/v2/orders-create", Read: read},
		{Name: "postmark", Header: "-",
			Note: "no key: use Checked, or AcceptDuplicates",
			Page: "https://postmarkapp.com/support/article/what-is-an-idempotency-key", Read: read},
		{Name: "resend", Header: "Idempotency-Key", MaxKey: 256, Memory: 24 * time.Hour,
			Note: "of POST /emails and /emails/batch. 409 means another payload under the key (invalid_idempotent_request) or one in progress",
			Page: "https://resend.com/docs/dashboard/emails/idempotency-keys", Read: read},
		{Name: "ses", Header: "-",
			Note: "no key among the parameters of SendEmail (API v2): use Checked, or AcceptDuplicates",
			Page: "https://docs.aws.amazon.com/goto/WebAPI/sesv2-2019-09-27/SendEmail", Read: read},
		{Name: "square", Header: "-", Field: "idempotency_key", MaxKey: 45,
			Note: "keys, but no published memory (said so by the vendor: https://developer.squareup.com/forums/t/question-about-idempotency-key-on-payments/28309): use Checked, or Keyed with a time you answer for",
			Page: "https://developer.squareup.com/docs/working-with-apis/idempotency", Read: read},
		{Name: "stripe", Header: "Idempotency-Key", MaxKey: 255, Memory: 24 * time.Hour,
			Note: "keys may be removed once they are 24 hours old. The first answer is repeated, a 500 too; what failed validation, or met another with the key, is not kept",
			Page: "https://docs.stripe.com/api/idempotent_requests", Read: read},
		{Name: "twilio", Header: "-",
			Note: "no key was found; sending a message is documented as not idempotent: use Checked, or AcceptDuplicates",
			Page: "https://www.twilio.com/docs/errors/20500", Read: read},
	}
}
