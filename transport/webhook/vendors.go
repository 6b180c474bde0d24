package webhook

// GitHub is the scheme of X-Hub-Signature-256. GitHub signs the body and nothing else: no timestamp, and not the id,
// X-GitHub-Delivery. Whoever has seen a request can send it again at any time, under the same id or another. Against the same
// id the memory of keys stands. Against another only something that is signed helps: [KeyBody] as [Config.SemanticKey].
func GitHub(secrets ...Secret) Scheme {
	return vendor(HMACConfig{Name: "github", Header: "X-Hub-Signature-256", Prefix: "sha256=", IDHeader: "X-GitHub-Delivery"}, secrets,
		keyed{kept: []string{"X-Github-Event", "X-Github-Hook-Id"}})
}

// Slack is the scheme of X-Slack-Signature, v0: the timestamp, X-Slack-Request-Timestamp, is signed. The id is the event_id of
// the Events API, in the signed body; slash commands and interactions are forms and have none: choose [KeyBody] for them.
func Slack(secrets ...Secret) Scheme {
	return vendor(HMACConfig{Name: "slack", Header: "X-Slack-Signature", Prefix: "v0=", TimestampHeader: "X-Slack-Request-Timestamp",
		Signed: "v0:{timestamp}:{body}"}, secrets,
		keyed{inBody: "/event_id", kept: []string{"X-Slack-Retry-Num", "X-Slack-Retry-Reason"}})
}

// Shopify is the scheme of X-Shopify-Hmac-Sha256. Shopify signs the body and nothing else: no timestamp, and not the id,
// X-Shopify-Event-Id; what [GitHub] says holds here too. One action of a merchant may cause deliveries on several topics under
// one event id, so the key is made of topic and id.
func Shopify(secrets ...Secret) Scheme {
	const topic = "X-Shopify-Topic"
	return vendor(HMACConfig{Name: "shopify", Header: "X-Shopify-Hmac-Sha256", Encoding: Base64, IDHeader: "X-Shopify-Event-Id"}, secrets,
		keyed{topic: topic, kept: []string{topic, "X-Shopify-Shop-Domain", "X-Shopify-Webhook-Id", "X-Shopify-Triggered-At", "X-Shopify-Api-Version"}})
}

// vendor is an HMAC with what only this sender has.
func vendor(c HMACConfig, secrets []Secret, own keyed) Scheme {
	own.c = c
	own.err = own.complete(secrets)
	return &own
}
