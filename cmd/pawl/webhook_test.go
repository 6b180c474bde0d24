package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	words "github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/webhook"
)

const (
	hookSecret = secret + "-of-a-webhook"
	event      = `{"id":"evt_1","event_id":"Ev1","type":"ping"}`
)

// hook runs pawl webhook with a secret in the environment and text on stdin.
func hook(t *testing.T, secret, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := command(t, "", append([]string{"webhook"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if secret != "" {
		cmd.Env = append(cmd.Env, "PAWL_WEBHOOK_SECRET="+secret)
	}
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Signatures match the vectors that GitHub and Standard Webhooks publish.
func TestWebhookSign_Vectors(t *testing.T) {
	t.Parallel()
	github := hook(t, "It's a Secret to Everybody", "Hello, World!", "sign", "--scheme", "github", "--id", "72d3162e")
	if want := "X-Github-Delivery: 72d3162e\nX-Hub-Signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17\n"; github.stdout != want || github.code != 0 {
		t.Errorf("%+v", github)
	}
	standard := hook(t, "", `{"test": 2432232314}`, "sign", "--scheme", "standard", "--id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "--at", "1614265330", "--json",
		"--secret-file", file(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"))
	if want := `{"headers":{"Webhook-Id":"msg_p5jXN8AQM9LWM0D4loKWxJek","Webhook-Signature":"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=","Webhook-Timestamp":"1614265330"}}` + "\n"; standard.stdout != want {
		t.Errorf("%+v", standard)
	}
}

// Signed bodies verify under every scheme. Repeated sends arrive as one delivery.
func TestWebhookSend_Duplicates(t *testing.T) {
	t.Parallel()
	for scheme, made := range map[string]func(...webhook.Secret) webhook.Scheme{"stripe": webhook.Stripe, "mux": webhook.Mux, "github": webhook.GitHub,
		"slack": webhook.Slack, "shopify": webhook.Shopify, "hmac": func(s ...webhook.Secret) webhook.Scheme {
			return webhook.HMAC(webhook.HMACConfig{Header: "X-Sig", IDHeader: "X-Id", Hash: webhook.SHA512, Encoding: webhook.Base64, TimestampHeader: "X-Time", Prefix: "s="}, s...)
		}} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			v, err := webhook.New(webhook.Config{Scheme: made(webhook.Secret{Value: hookSecret}), Hooks: (&words.Counters{}).Hooks()})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			keys := map[string]int{}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				m, err := v.Read(w, r)
				if err != nil {
					webhook.Refuse(w, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if keys[m.Key]++; string(m.Body) != event || m.UnsignedHeaders["Content-Type"] != "application/json" {
					t.Errorf("%+v", m)
				}
			}))
			defer server.Close()
			args := []string{"send", server.URL, "--scheme", scheme, "--repeat", "3"}
			if scheme == "hmac" {
				args = append(args, "--signature-header", "X-Sig", "--id-header", "X-Id", "--hash", "sha512", "--encoding", "base64", "--timestamp-header", "X-Time", "--prefix", "s=")
			}
			r := hook(t, hookSecret, event, args...)
			if r.code != 0 || r.stderr != "" || strings.Count(r.stdout, "200 OK  ") != 3 {
				t.Errorf("%+v", r)
			}
			for key, times := range keys {
				if len(keys) != 1 || times != 3 {
					t.Errorf("%q: %d", key, times)
				}
			}
			if len(keys) == 0 {
				t.Error("nothing arrived")
			}
			wantTries(t, hook(t, hookSecret+"!", event, args...), `401 Unauthorized  `, 3)
		})
	}
}

// wantTries checks a run whose tries all failed in the same way.
func wantTries(t *testing.T, r result, line string, n int) {
	t.Helper()
	if strings.Count(r.stdout, line) != n || strings.Contains(r.stdout, secret) {
		t.Errorf("stdout: %q", r.stdout)
	}
	r.stdout = ""
	wantFailure(t, r, 1, fmt.Sprintf("webhook.send: %d of %d tries were not answered 2xx", n, n), "pawl webhook verify")
}

func TestWebhookSend_Answers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
		case "/never":
			// otherwise the server does not notice that the client disconnected
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		case "/bad":
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, "no\n\x1b[31mtea", strings.Repeat("x", 1000))
		}
	}))
	defer server.Close()
	send := func(path string, more ...string) result {
		return hook(t, hookSecret, event, append([]string{"send", path, "--scheme", "stripe"}, more...)...)
	}
	wantTries(t, send(server.URL+"/away"), "307 Temporary Redirect  ", 1)
	wantTries(t, send(server.URL+"/bad"), `418 I'm a teapot  `, 1)
	if r := send(server.URL + "/bad"); strings.Contains(r.stdout, "\x1b") || strings.Count(r.stdout, "\n") != 1 || len(r.stdout) > 400 {
		t.Errorf("%q", r.stdout)
	}
	wantTries(t, send("http://127.0.0.1:1/?token="+secret), "connection refused", 1)
	wantTries(t, send(server.URL+"/never", "--timeout", "100ms"), "no answer in time", 1)
	r := send(server.URL, "--repeat", "2", "--json")
	var sent struct {
		ID    *string
		Tries []struct {
			Status       *int
			Milliseconds float64
			Answer       string
			Error        *string
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &sent); err != nil || sent.ID != nil || len(sent.Tries) != 2 || *sent.Tries[1].Status != 200 || sent.Tries[1].Error != nil || sent.Tries[0].Milliseconds <= 0 {
		t.Errorf("%v: %+v", err, r)
	}
}

// captured writes a request as a capture would, and returns the flags that name it.
func captured(t *testing.T, scheme, secret, body string, more ...string) []string {
	t.Helper()
	r := hook(t, secret, body, append([]string{"sign", "--scheme", scheme}, more...)...)
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	return []string{"verify", "--scheme", scheme, "--headers", file(t, "POST /hook HTTP/1.1\r\nContent-Type: application/json\r\n"+r.stdout), "--body", file(t, body)}
}

func TestWebhookVerify_Steps(t *testing.T) {
	t.Parallel()
	good := captured(t, "stripe", hookSecret, event, "--at", "1760000000")
	at := func(args []string, more ...string) []string {
		return append(append([]string{}, args...), append([]string{"--at", "2025-10-09T08:53:20Z"}, more...)...)
	}
	const golden = `STEP       OUTCOME  
headers    ok       
body       ok       
signature  ok       by env PAWL_WEBHOOK_SECRET
timestamp  ok       2025-10-09T08:53:20Z
key        ok       evt_1
Content-Type: application/json
`
	if r := hook(t, hookSecret, "", at(good)...); r.stdout != golden || r.code != 0 || r.stderr != "" {
		t.Errorf("%q %+v", golden, r)
	}
	replace := func(args []string, flag, with string) []string {
		args = at(args)
		for i := range args {
			if args[i] == flag {
				args[i+1] = with
			}
		}
		return args
	}
	for what, c := range map[string]struct {
		secret, step string
		args, said   []string
	}{
		"stale":          {hookSecret, "timestamp  failed       timestamp_stale: ", good, []string{"timestamp: timestamp_stale", "pass --at", "check yours first"}},
		"future":         {hookSecret, "timestamp  failed       timestamp_future: ", at(good, "--at", "1750000000"), []string{"timestamp: timestamp_future"}},
		"wrong secret":   {hookSecret + "!", "signature  failed       signature_mismatch: signatures: 1, secrets: 1", at(good), []string{"signature: signature_mismatch", "check the secret"}},
		"no headers":     {hookSecret, "headers    failed       header_missing: Stripe-Signature", replace(good, "--headers", file(t, "A: b\n")), []string{"headers: header_missing"}},
		"empty body":     {hookSecret, "body       failed       body_empty", replace(good, "--body", file(t, "")), []string{"body: body_empty"}},
		"editor":         {hookSecret, "signature  failed ", replace(good, "--body", file(t, event+"\n")), []string{"it verifies without the newline at the end of --body", "capture the raw octets"}},
		"forged":         {hookSecret, "signature  failed ", replace(good, "--body", file(t, strings.Replace(event, "ping", "pong", 1))), []string{"signature_mismatch"}},
		"another scheme": {hookSecret, "headers    failed       header_missing: X-Hub-Signature-256", replace(good, "--scheme", "github"), []string{"header_missing"}},
		"no key":         {hookSecret, "key        failed   the sender gave no id", at(captured(t, "stripe", hookSecret, "{}", "--at", "1760000000")), []string{"key: the sender gave no id", "Config.Key"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := hook(t, c.secret, "", c.args...)
			if !strings.Contains(r.stdout, c.step) || strings.Contains(r.stdout, secret) || strings.Count(r.stdout, "failed") != 1 {
				t.Errorf("%s", r.stdout)
			}
			r.stdout = ""
			wantFailure(t, r, 1, append(c.said, "webhook.verify: ")...)
		})
	}
}

func TestWebhookVerify_JSON(t *testing.T) {
	t.Parallel()
	type document struct {
		Verified bool
		Steps    []struct{ Step, Outcome, Reason, Detail string }
		Secret   *string
		Key      *string
		IDSigned bool    `json:"id_signed"`
		SentAt   *string `json:"sent_at"`
		Headers  map[string]string
	}
	var good, bad document
	args := captured(t, "github", hookSecret, event, "--id", "d-1")
	if r := hook(t, hookSecret, "", append(args, "--json")...); json.Unmarshal([]byte(r.stdout), &good) != nil || !good.Verified || *good.Key != "d-1" || good.IDSigned || good.SentAt != nil || good.Headers["X-Github-Delivery"] != "d-1" {
		t.Errorf("%+v", r)
	}
	if r := hook(t, hookSecret, "", args...); !strings.Contains(r.stdout, "not signed by this scheme") || !strings.Contains(r.stdout, "d-1 (the id is not signed)") {
		t.Errorf("%+v", r)
	}
	r := hook(t, hookSecret+"!", "", append(args, "--json")...)
	if json.Unmarshal([]byte(r.stdout), &bad) != nil || bad.Verified || bad.Secret != nil || bad.Steps[2].Reason != "signature_mismatch" || bad.Steps[3].Outcome != "not_reached" || bad.Steps[1].Outcome != "ok" {
		t.Errorf("%+v", r)
	}
}

// Several secrets work while one is rotated. The output names the one that signed.
func TestWebhookVerify_Rotation(t *testing.T) {
	t.Parallel()
	old := file(t, hookSecret+"\r\n")
	r := hook(t, hookSecret+"-new", "", append(captured(t, "slack", hookSecret, event), "--secret-env", "PAWL_WEBHOOK_SECRET", "--secret-file", old)...)
	if !strings.Contains(r.stdout, "by file "+old) {
		t.Errorf("%+v", r)
	}
}

// Help names the sources of the secret, and no flag takes the secret itself.
func TestWebhook_HelpTeaches(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"sign", "send", "verify"} {
		r := mustPawl(t, "", "webhook", verb, "--help")
		for _, part := range []string{"standard (Standard Webhooks", "PAWL_WEBHOOK_SECRET", "--secret-env", "--secret-file", "never from the command line", "Examples:"} {
			if !strings.Contains(r.stdout, part) {
				t.Errorf("%s: %q is missing", verb, part)
			}
		}
		wantFailure(t, hook(t, "", event, verb, "--scheme", "stripe", "--secret", "x"), 2, "unknown flag: --secret")
	}
}

func TestWebhook_WrongCommandLines(t *testing.T) {
	t.Parallel()
	short, missing := file(t, secret), filepath.Join(t.TempDir(), "missing")
	for line, want := range map[string][]string{
		"bogus":                                  {`unknown command "bogus"`, "pawl webhook --help"},
		"sign":                                   {"the scheme is missing", "github, hmac, mux"},
		"sign --scheme bogus":                    {`unknown scheme "bogus"`, "use one of"},
		"sign now --scheme stripe":               {`unexpected argument "now"`},
		"sign --scheme stripe --secret-env NONE": {`the variable "NONE" is not set`, "--secret-file"},
		"sign --scheme stripe --secret-file " + missing:                                  {"no such file", "name a file"},
		"sign --scheme stripe --secret-file " + short:                                    {"has 6 octets; at least 16"},
		"sign --scheme standard":                                                         {"is not whsec_, whpk_ or whsk_"},
		"sign --scheme stripe --prefix x":                                                {"--prefix describes --scheme hmac, not stripe"},
		"sign --scheme stripe --id x":                                                    {"in the body, at /id"},
		"sign --scheme github --id a,b":                                                  {"id_malformed"},
		"sign --scheme stripe --at yesterday":                                            {`--at "yesterday" is not a time after 1970`, "seconds since 1970"},
		"sign --scheme stripe --at -5":                                                   {"is not a time after 1970"},
		"sign --scheme stripe --body " + missing:                                         {"--body", "no such file"},
		"sign --scheme stripe --body /dev/null":                                          {"the body is empty"},
		"sign --scheme hmac":                                                             {"the Header that carries the signature is missing"},
		"sign --scheme hmac --signature-header S --hash md5":                             {`the hash "md5" is unknown`},
		"sign --scheme hmac --signature-header S --timestamp-header T --signed {body}":   {"does not sign it"},
		"send --scheme stripe":                                                           {"it takes 1 argument, not 0"},
		"send ftp://x --scheme stripe":                                                   {"the URL is not one of http or https"},
		"send localhost:8080 --scheme stripe":                                            {"the URL is not one of http or https"},
		"send http://x --scheme stripe --repeat 0":                                       {"--repeat must lie between 1 and 1000"},
		"send http://x --scheme stripe --timeout 0s":                                     {"--timeout must lie between 1ms and 10m"},
		"verify --scheme stripe":                                                         {"the request is missing", "--headers FILE"},
		"verify --scheme stripe --body x --headers " + missing:                           {"--headers", "no such file"},
		"verify --scheme stripe --body x --headers " + file(t, "no headers here"):        {"holds no headers"},
		"verify --scheme stripe --body x --tolerance 0s --at 1 --headers " + missing:     {"--headers"},
		"verify --scheme stripe --body x --tolerance 48h --headers " + file(t, "A: b\n"): {"Tolerance is 48h0m0s"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			wantFailure(t, hook(t, hookSecret, event, strings.Fields(line)...), 2, want...)
		})
	}
	wantFailure(t, hook(t, "", event, "sign", "--scheme", "stripe"), 2, `the variable "PAWL_WEBHOOK_SECRET" is not set or empty`)
	wantFailure(t, hook(t, hookSecret+" ", event, "sign", "--scheme", "stripe"), 2, "begins or ends with white space")
}
