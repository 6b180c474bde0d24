package dashboard_test

import (
	"context"
	"errors"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// The doctor's page shows a trigger's rows whose attempts are used up: how many, of which table,
// and the next step. After that step and another pass of the sweeper they are gone from the page.
func TestDoctor_ShowsRowsWhoseAttemptsAreUsedUp(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.exec(`create schema shop;
create table shop.orders (id bigint primary key, status text not null default 'pending', claimed_at timestamptz, completed_at timestamptz, last_error text,
  attempt_count int not null default 0, created_at timestamptz not null default now() - interval '1 hour');
insert into shop.orders (id, status, attempt_count, last_error, claimed_at) values
  (1, 'error', 3, 'the model is away', now() - interval '1 hour'), (2, 'error', 3, 'the model is away', now() - interval '1 hour'),
  (3, 'completed', 1, null, now() - interval '1 hour')`)
	rows, err := guard.New(b.pool, guard.Table{Name: "shop.orders", CreatedAt: "created_at"})
	if err != nil {
		t.Fatal(err)
	}
	ends := errors.New("the model is away")
	drive := func(ctx context.Context, id string) error {
		return rows.Once(ctx, id, func(context.Context, pgx.Tx) (any, error) { return nil, ends })
	}
	// finding returns the page's line about the rows, after the first pass of another sweeper.
	finding := func() string {
		sweeper, err := rows.Sweeper(guard.SweeperConfig{MaxAttempts: 3, PendingAfter: time.Minute, Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}, drive)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sweeper.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		findings := regexp.MustCompile(`(?s)Findings.*?</table>`).FindString(b.get("doctor").body)
		for _, line := range regexp.MustCompile(`(?s)<tr>.*?</tr>`).FindAllString(findings, -1) {
			if strings.Contains(line, "final error") {
				return html.UnescapeString(line)
			}
		}
		return ""
	}

	var line string
	patience.Until(t, "the page shows the rows", func() bool { line = finding(); return line != "" })
	for _, want := range []string{"rows", "2 rows of table shop.orders with a final error", "their attempts are used up", "set attempt_count to 0 and the status to pending"} {
		if !strings.Contains(line, want) {
			t.Errorf("the page does not say %q: %s", want, line)
		}
	}

	ends = nil // what the page says to do: correct the cause, then make the rows pending
	b.exec("update shop.orders set attempt_count = 0, status = 'pending' where status = 'error' and last_error like 'final: %'")
	b.exec("update shop.orders set claimed_at = now() - interval '1 hour'")
	patience.Until(t, "the page shows them no more", func() bool {
		// The highest count of a minute stays until the next minute.
		b.exec("update pawl.rollup set at = at - interval '1 day' where name = 'final_rows' and value > 0")
		return finding() == ""
	})
	if n := one[int](b, "select count(*) from shop.orders where status = 'completed'"); n != 3 {
		t.Errorf("%d rows of 3 are completed", n)
	}
}
