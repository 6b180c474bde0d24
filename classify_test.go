package pawl_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
)

func of(code string) error { return pawl.Wrap("x", &pgconn.PgError{Code: code, Severity: "ERROR"}) }

// Classify agrees with the registry and with Retryable and IsFinal, for every code.
func TestClassify_AgreesWithTheRest(t *testing.T) {
	t.Parallel()
	registry, err := os.ReadFile("schema/sqlstates.csv")
	if err != nil {
		t.Fatal(err)
	}
	codes := []string{"23505", "23503", "23514", "22P02", "40001", "40P01", "55P03", "57014", "57P01", "57P03", "08006", "53300", "53100", "25006", "42601"}
	for _, m := range regexp.MustCompile(`(?m)^(\w{5}),\w+,.*?,(no|yes|depends),`).FindAllStringSubmatch(string(registry), -1) {
		codes = append(codes, m[1])
		if got := pawl.Classify(of(m[1])); string(got.Retry) != m[2] {
			t.Errorf("%s: %+v, the registry says %s", m[1], got, m[2])
		}
	}
	for _, code := range codes {
		c, err := pawl.Classify(of(code)), of(code)
		if pawl.Retryable(err) != (c.Retry == pawl.RetryYes) || pawl.IsFinal(err) && c.Retry != pawl.RetryNo || c.By == "" || c.Redo == "" {
			t.Errorf("%s: %+v, but retryable %v, final %v", code, c, pawl.Retryable(err), pawl.IsFinal(err))
		}
	}
}

func TestClassify_HandlersOwnErrors(t *testing.T) {
	t.Parallel()
	if c := pawl.Classify(errors.New("boom")); c.Retry != pawl.RetryYes || c.By != "caller" {
		t.Errorf("a plain error: %+v", c)
	}
	if c := pawl.Classify(pawl.Final(of("40001"))); c.Retry != pawl.RetryNo {
		t.Errorf("a final one: %+v", c)
	}
}

// Joined without their lengths, ("ab", "c") and ("a", "bc") would be one key (trap T35).
func TestT35_KeyPartsDoNotRunTogether(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	seen := map[string]bool{}
	for _, parts := range [][]string{{"ab", "c"}, {"a", "bc"}, {"abc"}, {"abc", ""}, {"", "abc"}, {}, {long}, {long, ""}, {"3:abc"}, {"a", "2:bc"}} {
		key := pawl.Key(parts...)
		if seen[key] || len(key) > pawl.MaxKey {
			t.Errorf("%q makes %q", parts, key)
		}
		seen[key] = true
	}
	if key := pawl.Key("order", "17"); key != "5:order2:17" {
		t.Errorf("got %q", key)
	}
}

var write = flag.Bool("write", false, "write the table of docs/guides/choose.md")

// The page shows the table that Classify reads. Update: go test . -run PageShowsTheTable -write
func TestClassify_PageShowsTheTable(t *testing.T) {
	t.Parallel()
	const path, begin, end = "docs/guides/choose.md", "<!-- classes -->\n", "<!-- end -->"
	var want strings.Builder
	want.WriteString("| SQLSTATE | meaning | again? | who | what |\n|---|---|---|---|---|\n")
	for _, c := range pawl.Classes() {
		fmt.Fprintf(&want, "| %s%s | %s | %s | `%s` | %s |\n", c.Code, strings.Repeat("x", 5-len(c.Code)), c.Why, c.Retry, c.By, c.Redo)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(page), begin)
	got, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s has no place for the table", path)
	}
	if *write {
		if err := os.WriteFile(path, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want.String() {
		t.Errorf("%s shows another table; run: go test . -run PageShowsTheTable -write", path)
	}
}
