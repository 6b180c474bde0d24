package dashboard_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// No page grows with a payload, and a form has a bound.
func TestAttack_Large(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.exec(`insert into pawl.job (queue, kind, payload, headers, status, attempts, last_errors)
select 'q', 'k', convert_to(repeat('x', 4194304), 'UTF8'), jsonb_build_object('pawl-key', 'big', 'h', repeat('h', 1000000)), 'dead_letter', 10,
       (select jsonb_agg(jsonb_build_object('at', clock_timestamp(), 'attempt', n, 'error', repeat('e', 4000))) from generate_series(1, 10) as n)`)
	b.exec(`insert into pawl.delivery (consumer, key, payload, headers) values ('c', 'big', convert_to(repeat('y', 4194304), 'UTF8'), jsonb_build_object('h', repeat('h', 1000000)))`)
	b.exec(`insert into pawl.command (scope, key, hash, expires_at, status, response_body) values ('s', 'big', sha256('x'), clock_timestamp() + interval '1 day', 'succeeded', convert_to(repeat('z', 4194304), 'UTF8'))`)
	for _, address := range []string{"", "jobs", "dead-letters", "job?id=1", "payload?id=1", "story?key=big", "consumer?name=c", "delivery?consumer=c&key=big", "command?scope=s&key=big"} {
		if a := b.get(address); a.status != http.StatusOK || len(a.body) > 400_000 {
			t.Errorf("%s: %d, %d octets", address, a.status, len(a.body))
		}
	}
	form := url.Values{"id": {"1"}, "fence": {"0"}, "reason": {strings.Repeat("r", 10<<20)}, "mode": {"execute"}}
	for _, address := range []string{"do/job_discard", "all/retry", "all/purge", "run"} {
		if a := b.post(address, form); a.status < 400 || a.status > 499 {
			t.Errorf("a form of 10 MB to %s: %d", address, a.status)
		}
	}
	if a := b.get("story?key=" + strings.Repeat("k", 500_000)); a.status < 400 || a.status > 499 {
		t.Errorf("a key of 500,000 octets: %d", a.status)
	}
	if left := one[int](b, "select count(*) from pawl.job as j where j.status = 'dead_letter'"); left != 1 {
		t.Errorf("%d dead letters are left", left)
	}
}

// Addresses and forms refuse octets that are not text before they reach the database.
func TestAttack_OctetsThatAreNoText(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	for _, octets := range []string{"\xff", "a\x00b", "\xed\xa0\x80"} {
		for _, address := range []string{"story?key=", "queue?name=", "consumer?name=", "jobs?queue=", "jobs?error=", "jobs?after=", "lane?queue=q&name=", "delivery?consumer=c&key=", "command?scope=s&key=",
			"step?scope=s&key=k&step=", "gate?consumer=c&resource=", "schedule?name=", "audit?actor=", "run?id=", "do/queue_pause?name=", "all/retry?queue=", "?charts="} {
			if a := b.get(address + url.QueryEscape(octets)); a.status < 400 || a.status > 499 {
				t.Errorf("%s%q: %d", address, octets, a.status)
			}
		}
		for address, form := range map[string]url.Values{"do/queue_pause": {"name": {octets}}, "do/inbox_forget": {"consumer": {"c"}, "key": {octets}, "processed_at": {"none"}},
			"all/discard": {"queue": {octets}}, "all/purge": {"table": {"inbox"}, "consumer": {octets}, "older_than": {"720h"}}, "run": {"id": {octets}}, "do/job_retry": {"id": {"1"}, "fence": {"0"}, "reason": {octets}}} {
			form.Set("mode", "execute")
			if form.Get("reason") == "" {
				form.Set("reason", "x")
			}
			if a := b.post(address, form); a.status < 400 || a.status > 499 {
				t.Errorf("%s %q: %d", address, form, a.status)
			}
		}
	}
}

// A multipart body gives no parameters, with any method, since it would bypass the checks of
// addresses and forms.
func TestAttack_BodiesOfSeveralParts(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	id := b.dead()
	var body bytes.Buffer
	parts := multipart.NewWriter(&body)
	for name, value := range map[string]string{"id": fmt.Sprint(id), "fence": "7", "queue": "\xff", "key": "\xff", "name": "q", "reason": "x", "mode": "execute"} {
		if err := parts.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := parts.Close(); err != nil {
		t.Fatal(err)
	}
	send := func(method, address string) answer {
		return b.sendBody(method, address, bytes.NewReader(body.Bytes()), "Content-Type", parts.FormDataContentType(), "Sec-Fetch-Site", "same-origin")
	}
	for _, address := range []string{"jobs", "story"} {
		if a := send(http.MethodGet, address); a.status != http.StatusOK || strings.Contains(a.body, "trouble") {
			t.Errorf("%s: %d %s", address, a.status, a.body)
		}
	}
	for _, address := range []string{"do/job_discard", "do/queue_pause", "all/discard", "all/purge", "run"} {
		if a := send(http.MethodPost, address); a.status < 400 || a.status > 499 {
			t.Errorf("%s: %d %s", address, a.status, a.body)
		}
	}
	if got := one[string](b, "select format('%s dead, %s records', (select count(*) from pawl.job as j where j.status = 'dead_letter'), (select count(*) from pawl.audit))"); got != "1 dead, 0 records" {
		t.Error(got)
	}
}

// Malformed requests get no file, no action, no redirect to another site and no 5xx.
func TestAttack_PathsAndHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t, "/p", nil)
	b.exec("insert into pawl.job (queue, kind, payload, status) values ('q', 'k', '', 'dead_letter')")
	at, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	act := "id=1&fence=0&reason=x&mode=execute"
	for name, request := range map[string]string{
		"a file":                         "GET /p/assets/../handler.go HTTP/1.1\r\nHost: %s\r\n\r\n",
		"a file, encoded":                "GET /p/assets/%%2e%%2e/%%2e%%2e/etc/passwd HTTP/1.1\r\nHost: %s\r\n\r\n",
		"a file, with backslashes":       "GET /p/assets/..\\..\\handler.go HTTP/1.1\r\nHost: %s\r\n\r\n",
		"the directory":                  "GET /p/assets/ HTTP/1.1\r\nHost: %s\r\n\r\n",
		"another site in the path":       "GET /p//evil.example/%%2f.. HTTP/1.1\r\nHost: %s\r\n\r\n",
		"another site in an absolute":    "GET http://evil.example/p/jobs HTTP/1.1\r\nHost: %s\r\n\r\n",
		"a null in a parameter":          "GET /p/job?id=1%%00 HTTP/1.1\r\nHost: %s\r\n\r\n",
		"a broken parameter":             "GET /p/jobs?queue=%%zz&%%=%% HTTP/1.1\r\nHost: %s\r\n\r\n",
		"a header that splits":           "GET /p/story?key=a%%0d%%0aSet-Cookie:x=y HTTP/1.1\r\nHost: %s\r\n\r\n",
		"an action by GET":               "GET /p/do/job_discard?" + act + " HTTP/1.1\r\nHost: %s\r\n\r\n",
		"an action by GET with a method": "GET /p/do/job_discard?" + act + " HTTP/1.1\r\nHost: %s\r\nX-HTTP-Method-Override: POST\r\n\r\n",
		"an action in the address":       "POST /p/do/job_discard?" + act + " HTTP/1.1\r\nHost: %s\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 0\r\n\r\n",
		"an action as plain text":        "POST /p/do/job_discard HTTP/1.1\r\nHost: %s\r\nSec-Fetch-Site: same-origin\r\nContent-Type: text/plain\r\nContent-Length: " + fmt.Sprint(len(act)) + "\r\n\r\n" + act,
		"an action of another site":      "POST /p/do/job_discard HTTP/1.1\r\nHost: %s\r\nOrigin: http://evil.example\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: " + fmt.Sprint(len(act)) + "\r\n\r\n" + act,
		"an action of a frame":           "POST /p/do/job_discard HTTP/1.1\r\nHost: %s\r\nOrigin: null\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: " + fmt.Sprint(len(act)) + "\r\n\r\n" + act,
		"an address in a header":         "GET /p/jobs HTTP/1.1\r\nHost: %s\r\nX-Original-URL: /p/do/job_discard?" + act + "\r\nX-Rewrite-URL: /etc/passwd\r\nX-Forwarded-Host: evil.example\r\n\r\n",
		"DELETE":                         "DELETE /p/job?id=1 HTTP/1.1\r\nHost: %s\r\nSec-Fetch-Site: same-origin\r\n\r\n",
		"TRACE":                          "TRACE /p/ HTTP/1.1\r\nHost: %s\r\nCookie: secret\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := fmt.Fprintf(conn, request, at.Host); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			conn.Close()
			continue
		}
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
		conn.Close()
		if answer.StatusCode >= 500 || strings.Contains(string(body), "package dashboard") || strings.Contains(string(body), "root:") || strings.Contains(string(body), "secret") {
			t.Errorf("%s: %d %s", name, answer.StatusCode, body)
		}
		if to := answer.Header.Get("Location"); strings.HasPrefix(to, "//") || strings.Contains(to, "://") {
			t.Errorf("%s: it leads to %s", name, to)
		}
		if answer.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: it sets a cookie", name)
		}
	}
	if got := one[string](b, "select format('%s dead, %s records', (select count(*) from pawl.job as j where j.status = 'dead_letter'), (select count(*) from pawl.audit))"); got != "1 dead, 0 records" {
		t.Error(got)
	}
}
