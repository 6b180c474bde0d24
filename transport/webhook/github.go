package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/ranges"
)

// GitHubConfig configures [GitHubDeliveries]. Hook and Token are required.
type GitHubConfig struct {
	// Hook is the API path: "repos/OWNER/REPO/hooks/ID", "orgs/ORG/hooks/ID", or "app/hook".
	Hook string
	// Token returns an API token that may administer the webhook; for an App, its JWT. It is called
	// before each request.
	Token func(ctx context.Context) (string, error)
	// API is the API's URL. Default https://api.github.com; for Enterprise Server
	// https://HOST/api/v3.
	API string
	// Client sends the requests. Default: a client with a timeout of 30 s.
	Client *http.Client
	// LimitWait is the longest wait for GitHub's rate limit; above it, the call fails. Default 5
	// min.
	LimitWait time.Duration
}

// GitHubDeliveries is the [Ledger] of one GitHub webhook, see
// https://docs.github.com/en/rest/repos/webhooks. GitHub never retries and lists deliveries for 3
// days. Its API re-encodes payloads, so those of form-encoded webhooks can only be resent.
type GitHubDeliveries struct {
	cfg  GitHubConfig
	base *url.URL // of the deliveries
}

var _ Ledger = (*GitHubDeliveries)(nil)

const (
	githubPage = 100 // the most deliveries that the API lists at once
	// longestAnswer bounds a response: a page, or a delivery with its payload of up to 25 MB.
	longestResponse = 32 * mebibyte
	// githubTries bounds the attempts of one request under rate limits.
	githubTries = 4
)

// NewGitHubDeliveries returns the ledger of one webhook, or [pawl.ErrArgumentInvalid].
func NewGitHubDeliveries(c GitHubConfig) (*GitHubDeliveries, error) {
	c.API = strings.TrimSuffix(cmp.Or(c.API, "https://api.github.com"), "/")
	c.LimitWait = cmp.Or(c.LimitWait, 5*time.Minute)
	if c.Client == nil {
		c.Client = &http.Client{Timeout: 30 * time.Second}
	}
	if err := ranges.NotNegative(c); err != nil {
		return nil, invalid("webhook.github", err)
	}
	base, err := url.Parse(c.API + "/" + strings.Trim(c.Hook, "/") + "/deliveries")
	switch {
	case err != nil:
	case c.Hook == "" || c.Token == nil:
		err = errors.New("the fields Hook and Token are required")
	case base.Host == "" || base.Scheme != "https" && base.Scheme != "http":
		err = fmt.Errorf("the API %q is no address", c.API)
	}
	if err != nil {
		return nil, invalid("webhook.github", err)
	}
	return &GitHubDeliveries{cfg: c, base: base}, nil
}

// Sent yields the attempts, newest first, from as many pages as needed.
func (g *GitHubDeliveries) Sent(ctx context.Context, since time.Time) iter.Seq2[Sent, error] {
	return func(yield func(Sent, error) bool) {
		next := *g.base
		next.RawQuery = url.Values{"per_page": {strconv.Itoa(githubPage)}}.Encode()
		for page := &next; page != nil; {
			var items []struct {
				ID          int64
				GUID        string
				DeliveredAt time.Time `json:"delivered_at"`
				StatusCode  int       `json:"status_code"`
			}
			h, err := g.call(ctx, http.MethodGet, page, http.StatusOK, &items)
			if err == nil {
				page, err = g.next(h)
			}
			if err != nil {
				yield(Sent{}, err)
				return
			}
			for _, i := range items {
				s := Sent{Key: i.GUID, ID: strconv.FormatInt(i.ID, 10), At: i.DeliveredAt, Accepted: i.StatusCode >= 200 && i.StatusCode < 300}
				if s.At.Before(since) || !yield(s, nil) {
					return
				}
			}
		}
	}
}

// next returns the next page from the Link header, or nil. Another host must not get the token.
func (g *GitHubDeliveries) next(h http.Header) (*url.URL, error) {
	for link := range strings.SplitSeq(strings.Join(h.Values("Link"), ","), ",") {
		target, rel, _ := strings.Cut(link, ";")
		target, found := strings.CutPrefix(strings.TrimSpace(target), "<")
		if !found || !strings.Contains(rel, `rel="next"`) {
			continue
		}
		page, err := url.Parse(strings.TrimSuffix(target, ">"))
		if err != nil || page.Scheme != g.base.Scheme || page.Host != g.base.Host {
			return nil, fmt.Errorf("github: the next page is elsewhere: %.200q", target)
		}
		return page, nil
	}
	return nil, nil
}

// Fetch returns a delivery as GitHub shows it. The body is equivalent, but has other octets.
func (g *GitHubDeliveries) Fetch(ctx context.Context, s Sent) (http.Header, []byte, error) {
	var shown struct {
		Request struct {
			Headers map[string]string
			Payload json.RawMessage
		}
	}
	if _, err := g.call(ctx, http.MethodGet, g.base.JoinPath(s.ID), http.StatusOK, &shown); err != nil {
		return nil, nil, err
	}
	h := http.Header{}
	for name, value := range shown.Request.Headers {
		h.Set(name, value)
	}
	if kind := h.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		return nil, nil, fmt.Errorf("github: delivery %s was sent as %.100q, which the API does not show: set Resend", s.ID, kind)
	}
	if len(shown.Request.Payload) == 0 || string(shown.Request.Payload) == "null" {
		return nil, nil, fmt.Errorf("github: delivery %s is shown without its payload: set Resend", s.ID)
	}
	return h, shown.Request.Payload, nil
}

// Resend makes GitHub send a delivery again, with the same X-GitHub-Delivery.
func (g *GitHubDeliveries) Resend(ctx context.Context, s Sent) error {
	_, err := g.call(ctx, http.MethodPost, g.base.JoinPath(s.ID, "attempts"), http.StatusAccepted, nil)
	return err
}

// call sends a request and reads the response. It repeats the request after a rate limit.
func (g *GitHubDeliveries) call(ctx context.Context, method string, at *url.URL, want int, into any) (http.Header, error) {
	for try := 1; ; try++ {
		h, limited, err := g.send(ctx, method, at, want, into)
		if limited == 0 || try == githubTries || limited > g.cfg.LimitWait {
			return h, err
		}
		if !pace.Sleep(ctx, limited) {
			return nil, ctx.Err()
		}
	}
}

// send sends one request. If it failed because of a rate limit, limited is how long to wait.
func (g *GitHubDeliveries) send(ctx context.Context, method string, at *url.URL, want int, into any) (h http.Header, limited time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
	if err != nil {
		return nil, 0, err
	}
	var token string
	err = callback.Do("GitHubConfig.Token", func() (err error) {
		token, err = g.cfg.Token(ctx)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("github: the token: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "application/vnd.github+json")
	request.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	response, err := g.cfg.Client.Do(request)
	if err != nil {
		return nil, 0, fmt.Errorf("github: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, longestResponse))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("github: %w", err)
	case response.StatusCode != want:
		return nil, limitOf(response), fmt.Errorf("github: %s %s: %s: %.300q", method, at.Path, response.Status, body)
	case into == nil:
		return response.Header, 0, nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return nil, 0, fmt.Errorf("github: %s %s: %w", method, at.Path, err)
	}
	return response.Header, 0, nil
}

// limitOf returns how long to wait after a rate-limit response: Retry-After, else the reset time,
// else a minute, as GitHub documents. It returns 0 for other responses.
func limitOf(r *http.Response) time.Duration {
	if r.StatusCode != http.StatusForbidden && r.StatusCode != http.StatusTooManyRequests {
		return 0
	}
	if seconds, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil && seconds >= 0 {
		return max(time.Duration(seconds)*time.Second, time.Second)
	}
	if reset, err := strconv.ParseInt(r.Header.Get("X-RateLimit-Reset"), 10, 64); err == nil && r.Header.Get("X-RateLimit-Remaining") == "0" {
		return max(time.Until(time.Unix(reset, 0)), time.Second)
	}
	if r.StatusCode == http.StatusTooManyRequests {
		return time.Minute
	}
	return 0 // forbidden, but not by a limit
}
