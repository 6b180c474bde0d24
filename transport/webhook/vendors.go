package webhook

import "net/http"

// GitHub is the scheme of X-Hub-Signature-256. GitHub signs only the body: no timestamp, and not
// the id, X-GitHub-Delivery. An observer can replay a request at any time. Under the same id it is
// a duplicate. For other ids set [KeyBody] as [Config.SemanticKey].
func GitHub(secrets ...Secret) Scheme {
	return vendor(HMACConfig{Name: "github", Header: "X-Hub-Signature-256", Prefix: "sha256=", IDHeader: "X-GitHub-Delivery"}, secrets,
		hmacScheme{kept: []string{"X-Github-Event", "X-Github-Hook-Id"}})
}

// Slack is the scheme of X-Slack-Signature, v0. The timestamp, X-Slack-Request-Timestamp, is
// signed. The id is the event_id of the Events API, in the signed body. Slash commands and
// interactions are forms without an id: use [KeyBody] for them.
func Slack(secrets ...Secret) Scheme {
	return vendor(HMACConfig{Name: "slack", Header: "X-Slack-Signature", Prefix: "v0=", TimestampHeader: "X-Slack-Request-Timestamp",
		Signed: "v0:{timestamp}:{body}"}, secrets,
		hmacScheme{inBody: "/event_id", kept: []string{"X-Slack-Retry-Num", "X-Slack-Retry-Reason"}})
}

// Shopify is the scheme of X-Shopify-Hmac-Sha256. Shopify signs only the body: no timestamp, and
// not the id, X-Shopify-Webhook-Id. See [GitHub] for replays. The key is made of X-Shopify-Topic
// and that id, as Shopify recommends
// (https://shopify.dev/docs/apps/build/webhooks/verify-deliveries). Deliveries of one action of a
// merchant share X-Shopify-Event-Id, which is kept with each.
//
// Shopify's Events use the same header names without X-. One verifier takes both: a request without
// X-Shopify-Hmac-Sha256 is read by the other names. Sign uses the names with X-.
func Shopify(secrets ...Secret) Scheme {
	return twoFamilies{
		hmacScheme: shopify(secrets, "X-Shopify-"),
		second:     shopify(secrets, "Shopify-", "Handle", "Action", "Resource-Id"),
	}
}

func shopify(secrets []Secret, prefix string, kept ...string) *hmacScheme {
	names := []string{prefix + "Topic"}
	for _, name := range append([]string{"Shop-Domain", "Triggered-At", "Api-Version", "Event-Id"}, kept...) {
		names = append(names, prefix+name)
	}
	return vendor(HMACConfig{Name: "shopify", Header: prefix + "Hmac-Sha256", Encoding: Base64, IDHeader: prefix + "Webhook-Id"}, secrets,
		hmacScheme{topic: names[0], kept: names})
}

// twoFamilies is a scheme of a sender with two sets of header names. The signature's header selects
// the set. With both or none it is the first, so a request has one reading.
type twoFamilies struct {
	*hmacScheme
	second *hmacScheme
}

func (s twoFamilies) family(h http.Header) *hmacScheme {
	if len(h.Values(s.c.Header)) == 0 && len(h.Values(s.second.c.Header)) > 0 {
		return s.second
	}
	return s.hmacScheme
}

func (s twoFamilies) keeps() []string { return append(s.hmacScheme.keeps(), s.second.keeps()...) }

func (s twoFamilies) headers(h http.Header) []string { return s.family(h).headers(h) }

func (s twoFamilies) verify(h http.Header, body []byte) (signatureInfo, error) {
	return s.family(h).verify(h, body)
}

// named has no signature header, so the id's header selects the set.
func (s twoFamilies) named(h http.Header, body []byte) (signatureInfo, error) {
	if len(h.Values(s.c.IDHeader)) == 0 && len(h.Values(s.second.c.IDHeader)) > 0 {
		return s.second.named(h, body)
	}
	return s.hmacScheme.named(h, body)
}

// vendor completes the HMAC scheme of one sender, own.
func vendor(c HMACConfig, secrets []Secret, own hmacScheme) *hmacScheme {
	own.c = c
	own.err = own.complete(secrets)
	return &own
}
