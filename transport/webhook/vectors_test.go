package webhook_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/pawl-go/pawl/transport/webhook"
)

// Vectors that the senders publish verify, and Sign reproduces them.
func TestVectors(t *testing.T) {
	t.Parallel()
	const slackForm = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	for _, vector := range []struct {
		name, page string
		scheme     webhook.Scheme
		at         int64
		id, body   string
		headers    map[string]string
	}{
		{"standard v1", "standard-webhooks/libraries/go/webhook_test.go, TestWebhookSign", webhook.StandardWebhooks(secrets(whsec)...),
			1614265330, "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`,
			map[string]string{"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330", "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}},
		{"standard v1a", "standard-webhooks/libraries/go/webhook_asymmetric_test.go, TestAsymmetricWebhookSign", webhook.StandardWebhooks(secrets(whsk)...),
			1614265330, "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`,
			map[string]string{"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330", "webhook-signature": "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="}},
		{"svix", "the same vector under Svix' headers", webhook.Svix(secrets(whsec)...),
			1614265330, "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`,
			map[string]string{"svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "svix-timestamp": "1614265330", "svix-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}},
		{"github", "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries", webhook.GitHub(secrets("It's a Secret to Everybody")...),
			0, "72d3162e-cc78-11e3-81ab-4c9367dc0958", "Hello, World!",
			map[string]string{"X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}},
		{"slack", "https://docs.slack.dev/authentication/verifying-requests-from-slack", webhook.Slack(secrets("8f742231b10e8888abcd99yyyzzz85a5")...),
			1531420618, "", slackForm,
			map[string]string{"X-Slack-Request-Timestamp": "1531420618", "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"}},
	} {
		t.Run(vector.name, func(t *testing.T) {
			t.Parallel()
			at := time.Unix(vector.at, 0)
			ours, err := vector.scheme.Sign(vector.id, at, []byte(vector.body))
			if err != nil {
				t.Fatal(err)
			}
			h := http.Header{}
			for name, value := range vector.headers {
				h.Set(name, value)
				if ours.Get(name) != value {
					t.Errorf("%s: we write %q, %s has %q", name, ours.Get(name), vector.page, value)
				}
			}
			v := verifier(t, webhook.Config{Scheme: vector.scheme, Now: func() time.Time { return at }})
			if m, err := v.Verify(h, []byte(vector.body)); err != nil || m.ID != vector.id {
				t.Errorf("%q, %v", m.ID, err)
			}
		})
	}
	// The private key of the v1a vector, and the public key that a receiver has.
	public := webhook.StandardWebhooks(secrets("whpk_" + publicOf(t, whsk))...)
	h, err := webhook.StandardWebhooks(secrets(whsk)...).Sign("msg_1", now, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verifier(t, webhook.Config{Scheme: public, Now: func() time.Time { return now }}).Verify(h, []byte(body)); err != nil {
		t.Error(err)
	}
	if _, err := public.Sign("msg_1", now, []byte(body)); err == nil {
		t.Error("a public key signs")
	}
}
