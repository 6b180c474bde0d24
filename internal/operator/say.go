package operator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/ops"
)

// Selection describes the dead letters that are selected.
func Selection(s ops.Jobs) string {
	what := "dead letters"
	if s.Kind != "" {
		what += " of kind " + s.Kind
	}
	if s.Queue != "" {
		what += " of queue " + s.Queue
	} else {
		what += " of all queues"
	}
	if s.Error != "" {
		what += fmt.Sprintf(" whose last error contains %q", s.Error)
	}
	if s.OlderThan != 0 {
		what += " older than " + s.OlderThan.String()
	}
	return what
}

// Plan describes when a schedule ticks: "every 1h", "0 3 * * * Europe/Berlin".
func Plan(s ops.Schedule) string {
	if s.Cron != "" {
		return s.Cron + " " + s.TimeZone
	}
	every := s.Every.String() // 1h0m0s
	if every = strings.Replace(every, "m0s", "m", 1); strings.HasSuffix(every, "h0m") {
		every = strings.TrimSuffix(every, "0m")
	}
	return "every " + every
}

// A Member is a name and a value of a JSON object.
type Member struct{ Name, Value string }

// Members returns the members of a JSON object that are not null, sorted by name.
func Members(object []byte) (members []Member) {
	var all map[string]json.RawMessage
	if json.Unmarshal(object, &all) != nil {
		return nil
	}
	for name, value := range all {
		text := string(value)
		if text == "null" {
			continue
		}
		_ = json.Unmarshal(value, &text) // else it is no text, and stays JSON
		members = append(members, Member{name, text})
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return members
}
