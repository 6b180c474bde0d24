package adopt

import (
	"os"
	"strings"
	"testing"
)

// The guide shows the SQL that the command prints for the guide's table.
func TestGuide_ShowsTheSQL(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/guides/adopting.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), strings.TrimSpace(example)) {
		t.Error("the guide has another table")
	}
	b := setup(t, example)
	table := b.find(Choice{Table: "processed_messages", Consumer: "payments", Payload: "body"})
	scripts := []string{table.Insert(), table.Call()[len("select "):strings.Index(table.Call(), "(")]}
	for _, s := range table.Plan() {
		scripts = append(scripts, strings.Split(s.SQL, "\n\ndrop ")...)
	}
	for _, s := range scripts {
		if !strings.Contains(string(page), s) {
			t.Errorf("the guide lacks\n%s", s)
		}
	}
	if len(scripts) != 8 {
		t.Errorf("%d scripts", len(scripts))
	}
}
