package dashboard_test

import (
	"html"
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	tried = regexp.MustCompile(`(?s)<div class="empty"><p>.*?</p><pre>(.*?)</pre></div>`)
	psql  = regexp.MustCompile(`^psql "\$PAWL_DATABASE_URL" -c "(.*)"$`)
)

// In an empty database each page shows a command that makes its first row appear. A page that was
// narrowed shows none.
func TestEmpty_TheCommandMakesTheFirstRow(t *testing.T) {
	t.Parallel()
	commands, err := os.ReadFile("../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{"queues": ">try<", "jobs": ">hello<", "lanes": ">account 7<", "gates": ">account 7<", "commands": ">key-1<", "outbox": "order.placed",
		"schedules": ">try<", "story": "job try 1<", "consumers": "", "workers": "", "audit": ""} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "", nil)
			shown := tried.FindStringSubmatch(b.get(address).body)
			if shown == nil {
				t.Fatal("no command")
			}
			command := html.UnescapeString(shown[1])
			statement := psql.FindStringSubmatch(command)
			if want == "" {
				words := strings.Fields(command)
				if !strings.Contains(string(commands), "`"+strings.Join(words[:2], " ")+"`") && !strings.Contains(string(commands), "`"+strings.Join(words[:3], " ")+"`") {
					t.Errorf("%q is no command of pawl", command)
				}
				return
			}
			if statement == nil {
				t.Fatalf("%q calls no SQL", command)
			}
			b.exec(strings.ReplaceAll(statement[1], `\"`, `"`))
			if address == "story" {
				address = "story?key=order-17"
			}
			if a := b.get(address); !strings.Contains(a.body, want) || tried.MatchString(a.body) {
				t.Errorf("after %s there is no %s:\n%s", command, want, a.body)
			}
		})
	}
	b := setup(t, "", nil)
	for _, address := range []string{"jobs?queue=none", "lanes?blocked=yes", "gates?consumer=c", "commands?scope=s", "outbox?sink=s", "audit?actor=me", "dead-letters?kind=k"} {
		if a := b.get(address); !strings.Contains(a.body, "Leave out a condition") || strings.Contains(a.body[strings.Index(a.body, `<form class="filter"`):], `class="empty"`) {
			t.Errorf("%s: %s", address, a.body)
		}
	}
}
