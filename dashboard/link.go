package dashboard

import (
	"fmt"
	"net/url"
	"strings"
)

// A link makes addresses of pages, relative to the current page, so that the dashboard works at
// every path.
type link struct{ root string }

// linkFrom returns the link maker for a page at this path below the handler.
func linkFrom(path string) link {
	return link{"./" + strings.Repeat("../", max(strings.Count(path, "/")-1, 0))}
}

// To returns the address of a page. parameters are names and values in turn; those without a value
// are left out.
func (l link) To(page string, parameters ...any) string {
	values := url.Values{}
	for i := 0; i+1 < len(parameters); i += 2 {
		if value := fmt.Sprint(parameters[i+1]); value != "" {
			values.Add(fmt.Sprint(parameters[i]), value)
		}
	}
	address := l.root + page
	if len(values) > 0 {
		address += "?" + values.Encode()
	}
	return address
}

// Job, Lane and the like return the address of one object. Names are parameters, since a key may
// hold slashes, dots and octets that are not allowed in paths.

func (l link) Job(id int64) string { return l.To("job", "id", id) }

func (l link) Lane(queue, name string) string { return l.To("lane", "queue", queue, "name", name) }

func (l link) Queue(name string) string { return l.To("queue", "name", name) }

func (l link) Consumer(name string) string { return l.To("consumer", "name", name) }

func (l link) Command(scope, key string) string { return l.To("command", "scope", scope, "key", key) }

func (l link) Delivery(consumer, key string) string {
	return l.To("delivery", "consumer", consumer, "key", key)
}

func (l link) Step(scope, key, step string) string {
	return l.To("step", "scope", scope, "key", key, "step", step)
}

func (l link) Schedule(name string) string { return l.To("schedule", "name", name) }

func (l link) Gate(consumer, resource string) string {
	return l.To("gate", "consumer", consumer, "resource", resource)
}

func (l link) Story(key, scope string) string { return l.To("story", "key", key, "scope", scope) }
