package dashboard

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/operator"
	texts "github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

type timeline []moment

type moment struct {
	At      time.Time
	Day     string // if it is not that of the moment before
	Later   string // since the moment before: "+1.9 s"
	Mark    string // a sign for the class, beside the words
	Class   string
	Subject cell
	Event   string
	Details []operator.Member
}

// story shows all facts about one key in the order of time, as `pawl explain` does.
func story(v *view) error {
	key, scope := v.param("key"), v.param("scope")
	fields := []field{{Name: "key", Label: "key or job id"}, {Name: "scope", Label: "only in this scope, consumer, queue or guarded table"}}
	if key == "" {
		v.filter("story", fields...)
		v.add(noStory)
		return nil
	}
	s, err := see(v, func(ctx context.Context, db pawl.DB) (ops.Story, error) {
		s, err := ops.Explain(ctx, db, key, scope)
		// A key that was pasted with spaces around it is tried without them.
		if typed := strings.TrimSpace(key); err == nil && !s.Known() && typed != key && typed != "" {
			key = typed
			return ops.Explain(ctx, db, key, scope)
		}
		return s, err
	})
	if err != nil {
		return err
	}
	v.Title, v.ReadAt = "Story of "+key, s.ReadAt
	if !s.Known() {
		hint := "compare it with the key that its sender gave; it may have come longer ago than is remembered"
		if len(s.Beyond) > 0 {
			hint = "there are more " + strings.Join(s.Beyond, " and ") + " than were looked in: name one"
		}
		v.add(note{Class: "notice", Text: "Nothing is known of this key.", Hint: hint})
	} else {
		told := v.timeline(s)
		if p := v.pictureOf(s, told); p != nil {
			v.add(*p)
		}
		v.add(told)
	}
	v.filter("story", fields...)
	looked := "Looked in: " + strings.Join(s.Looked, ", ") + "."
	if len(s.Beyond) > 0 {
		looked += " Not looked in all of: " + strings.Join(s.Beyond, ", ") + "."
	}
	command := "pawl explain "
	if scope != "" {
		command += "--scope " + texts.ShellWord(scope) + " "
	}
	if strings.HasPrefix(key, "-") { // or the command would read a flag
		command += "-- "
	}
	command += texts.ShellWord(key)
	v.add(note{Class: "quiet", Text: looked}, facts{{"the same in a terminal", mono(command)}})
	return nil
}

func (v *view) timeline(s ops.Story) (t timeline) {
	var before time.Time
	now := false
	for _, m := range s.Moments {
		if m.At.After(s.ReadAt) && !now {
			t, now, before = append(t, moment{At: s.ReadAt, Day: day(before, s.ReadAt), Later: after(before, s.ReadAt), Class: "now", Mark: "―", Event: "now"}), true, s.ReadAt
		}
		mark, class := markOf(m)
		t = append(t, moment{At: m.At, Day: day(before, m.At), Later: after(before, m.At), Mark: mark, Class: class, Subject: v.subject(m), Event: m.Event, Details: operator.Members(m.Detail)})
		if !m.At.IsZero() {
			before = m.At
		}
	}
	return t
}

// day formats the day of a moment, unless the moment before had the same.
func day(before, t time.Time) string {
	day := t.UTC().Format("2006-01-02")
	if day == before.UTC().Format("2006-01-02") {
		return ""
	}
	return day
}

// after formats the time since the moment before.
func after(before, t time.Time) string {
	if before.IsZero() || t.IsZero() || t.Before(before) {
		return ""
	}
	return "+" + span(t.Sub(before))
}

// subject returns the object of a moment and a link to it.
func (v *view) subject(m ops.Moment) cell {
	c := cell{Text: strings.TrimSpace(m.Kind + " " + m.Scope + " " + m.Key)}
	switch m.Kind {
	case "job":
		if id, err := strconv.ParseInt(m.Key, 10, 64); err == nil {
			c.Link = v.Link.Job(id)
		}
	case "command":
		c.Link = v.Link.Command(m.Scope, m.Key)
	case "delivery":
		c.Link = v.Link.Delivery(m.Scope, m.Key)
	case "gate":
		c.Link = v.Link.Gate(m.Scope, m.Key)
	case "step":
		var d struct{ Step string }
		if _ = json.Unmarshal(m.Detail, &d); d.Step != "" { // empty without one
			c.Text, c.Link = c.Text+" "+d.Step, v.Link.Step(m.Scope, m.Key, d.Step)
		}
	}
	return c
}

// markOf returns the sign and the class of a moment.
func markOf(m ops.Moment) (mark, class string) {
	switch m.Event {
	case "dead_letter", "unknown", "failed_final", "lease_ended":
		return "✕", "bad"
	case "failed", "failed_retryable", "cancelled", "held", "ambiguous", "stale_write_refused":
		return "△", "odd"
	case "succeeded", "processed", "executed":
		return "●", "good"
	case "memory_ends":
		return "○", "plain"
	}
	if strings.Contains(m.Event, "_") { // an operator's verb
		return "◆", "hand"
	}
	return "○", "plain"
}
