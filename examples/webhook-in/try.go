package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/transport/webhook"
)

// tryOut acts as the two senders: each delivery three times, one payment under two ids, and one
// forged delivery. It prints the results.
func tryOut(ctx context.Context, url string, pool *pgxpool.Pool) error {
	github, stripe := webhook.GitHub(secret("GITHUB_SECRET")), webhook.Stripe(secret("STRIPE_SECRET"))
	forged := webhook.Stripe(webhook.Secret{Value: "somebody else's secret"})
	paid := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"type":"invoice.paid","data":{"object":{"id":"in_7","amount_paid":1999}}}`, id)
	}
	for _, d := range []struct {
		scheme   webhook.Scheme
		path, id string
		body     string
		times    int
	}{
		{github, "/github", "72d3162e-cc78-11e3-81ab-4c9367dc0958", `{"ref":"refs/heads/main","after":"6113728f27ae82c7b1a177c8d03f9e96e0adf246"}`, 3},
		{stripe, "/stripe", "", paid("evt_1"), 3},
		{stripe, "/stripe", "", paid("evt_2"), 3},
		{forged, "/stripe", "", paid("evt_3"), 1},
	} {
		for range d.times {
			h, err := d.scheme.Sign(d.id, time.Now(), []byte(d.body))
			if err != nil {
				return err
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+d.path, bytes.NewReader([]byte(d.body)))
			if err != nil {
				return err
			}
			r.Header = h
			r.Header.Set("X-GitHub-Event", "push")
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			_ = response.Body.Close()
			fmt.Printf("%-8s %s\n", d.path, response.Status)
		}
	}
	var pushes, bookings, cents int
	err := pool.QueryRow(ctx, "select (select count(*) from push), count(*), coalesce(sum(b.cents), 0) from booking as b").Scan(&pushes, &bookings, &cents)
	fmt.Printf("pushes: %d, bookings: %d, cents: %d\n", pushes, bookings, cents)
	return err
}
