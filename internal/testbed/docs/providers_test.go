package docs_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/step"
)

// The guide's table of providers agrees with step.Providers about the place of the key, its length
// if given, and the retention.
func TestSteps_ProvidersOfTheGuide(t *testing.T) {
	t.Parallel()
	section := sectionOf(t, "docs/guides/steps.md", "Providers")
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z][\w ]+) \|(.*)\|(.*)\|(.*)\|$`).FindAllStringSubmatch(section, -1) {
		name := strings.ToLower(m[1])
		if name == "amazon ses" {
			name = "ses"
		}
		rows[name] = m[2:]
	}
	if n := len(step.Providers()); n != len(rows) {
		t.Errorf("%d rows, and %d providers", len(rows), n)
	}
	hours := map[time.Duration]string{24 * time.Hour: " 24 h", 6 * time.Hour: " 6 h", 15 * time.Minute: " 15 min"}
	for _, p := range step.Providers() {
		row := rows[p.Name]
		if row == nil {
			t.Errorf("no row of %s", p.Name)
			continue
		}
		key := "`" + p.Header + "`"
		if p.Header == "-" {
			key = " none"
		}
		if p.Field != "" {
			key = "`" + p.Field + "` in the body"
		}
		if !strings.Contains(row[0], key) {
			t.Errorf("%s: the key is %q, want %s", p.Name, row[0], key)
		}
		if m := regexp.MustCompile(`(\d+) characters`).FindStringSubmatch(row[0]); m != nil && m[1] != strconv.Itoa(p.MaxKey) {
			t.Errorf("%s: a key has %s characters, want %d", p.Name, m[1], p.MaxKey)
		}
		told := regexp.MustCompile(`^ (\d|not published)?`).FindString(row[1])
		if p.Memory > 0 && !strings.HasPrefix(row[1], hours[p.Memory]) || p.Memory == 0 && strings.ContainsAny(told, "0123456789") {
			t.Errorf("%s: remembered for %q, want %v", p.Name, row[1], p.Memory)
		}
	}
}
