package pawlrabbitmq

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
)

// managed is the management API's description of a queue: GET /api/queues/VHOST/NAME.
type managed struct {
	Type      string         `json:"type"`
	Durable   bool           `json:"durable"`
	Arguments map[string]any `json:"arguments"`
	// Policy is the policy merged with the operator policy.
	Policy map[string]any `json:"effective_policy_definition"`
}

// managementTries bounds the retries until the management API knows a new queue, within 5 s.
const managementTries = 30

func askManagement(ctx context.Context, address, vhost, queue string) (queueFacts, error) {
	refuse := func(format string, args ...any) error {
		return &pawl.Error{Op: "rabbitmq.open", Err: fmt.Errorf("the management API: "+format, args...),
			Hint: "check Config.Management: https://user:password@host:15672, a user with the tag management, and the plugin rabbitmq_management"}
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" {
		return queueFacts{}, refuse("the address is no URL")
	}
	user := base.User
	base.User = nil
	at := strings.TrimSuffix(base.String(), "/") + "/api/queues/" + url.PathEscape(cmp.Or(vhost, "/")) + "/" + url.PathEscape(queue)
	var m managed
	for try := 1; ; try++ {
		status, err := getJSON(ctx, at, user, &m)
		switch {
		case err != nil:
			return queueFacts{}, refuse("%w", err)
		case status == http.StatusOK && m.Type != "":
			return m.facts(), nil
		case status != http.StatusNotFound && status != http.StatusOK || try == managementTries:
			return queueFacts{}, refuse("it answers %d for %s", status, at)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return queueFacts{}, refuse("%w", ctx.Err())
		}
	}
}

func getJSON(ctx context.Context, address string, user *url.Userinfo, into any) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	if user != nil {
		password, _ := user.Password()
		request.SetBasicAuth(user.Username(), password)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return response.StatusCode, nil
	}
	return response.StatusCode, json.NewDecoder(http.MaxBytesReader(nil, response.Body, 16<<20)).Decode(into)
}

// facts merges the arguments of a queue and its policies; an argument wins. Of two limits RabbitMQ
// uses the smaller one, but the argument's is close enough for a warning.
func (m managed) facts() queueFacts {
	f := queueFacts{kind: m.Type, durable: m.Durable, arguments: map[string]string{}, policies: true}
	for name, value := range m.Policy {
		f.arguments["x-"+name] = numberOrText(value)
	}
	for name, value := range m.Arguments {
		f.arguments[name] = numberOrText(value)
	}
	return f
}

func numberOrText(value any) string {
	if n, is := value.(float64); is {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprint(value)
}
