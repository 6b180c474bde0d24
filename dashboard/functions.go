package dashboard

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/pawl-go/pawl/ops"
)

// functions are the functions of the templates. None returns template.HTML or the like, so
// html/template escapes everything.
var functions = template.FuncMap{
	"ago":      ago,
	"until":    func(at, now time.Time) string { return span(at.Sub(now)) },
	"span":     span,
	"number":   number,
	"octets":   octets,
	"stamp":    stamp,
	"clock":    func(at time.Time) string { return at.UTC().Format("15:04:05.000") },
	"iso":      func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) },
	"visible":  visible,
	"short":    short,
	"state":    state,
	"figures":  func(head string) bool { return strings.HasPrefix(head, "#") },
	"headText": func(head string) string { return strings.TrimPrefix(head, "#") },
}

func ago(at, now time.Time) string {
	if at.IsZero() {
		return "–"
	}
	return span(now.Sub(at)) + " ago"
}

// span writes a duration with the one or two units that matter.
func span(d time.Duration) string {
	if d < 0 {
		return "−" + span(-d)
	}
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < 2*time.Minute:
		return strconv.FormatInt(int64(d.Seconds()), 10) + " s"
	case d < 2*time.Hour:
		return strconv.FormatInt(int64(d.Minutes()), 10) + " min"
	case d < 48*time.Hour:
		return strconv.FormatInt(int64(d.Hours()), 10) + " h"
	}
	return strconv.FormatInt(int64(d.Hours()/24), 10) + " days"
}

// number writes 12345 as 12,345.
func number(n any) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func octets(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// stamp formats a time in UTC, as in logs.
func stamp(at time.Time) string {
	if at.IsZero() {
		return "–"
	}
	return at.UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// visible replaces characters that a browser hides or reorders: control characters and direction
// marks.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

func short(limit int, text string) string {
	runes := []rune(visible(text))
	if len(runes) <= limit {
		return string(runes)
	}
	return string(runes[:limit]) + "…"
}

// state returns the CSS class of a status. The status itself is shown as text, so colour is never
// the only sign.
func state(s ops.Status) string {
	switch s {
	case ops.StatusDeadLetter, ops.StatusUnknown, ops.StatusFailedFinal:
		return "bad"
	case ops.StatusProcessing, ops.StatusSucceeded:
		return "good"
	case ops.StatusCancelled, ops.StatusFailedRetryable:
		return "odd"
	}
	return "plain"
}
