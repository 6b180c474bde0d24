package catalog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// DeliveryQuery selects kept deliveries.
type DeliveryQuery struct {
	Consumer    string
	From, Until time.Time
	Page
}

// Deliveries reads the deliveries of a consumer that were kept in an interval, oldest first. It
// leaves out Pawl's own keys, which belong to dead letters.
func Deliveries[T any](ctx context.Context, db DB, a DeliveryQuery) ([]T, error) {
	q := &query{from: `(
  select d.consumer, d.key, d.received_at, i.processed_at, i.job_id, j.status as job_status, i.result_ref, encode(coalesce(i.hash, d.hash), 'hex') as fingerprint,
         i.key is not null as remembered, true as kept, octet_length(d.payload) as kept_octets
    from pawl.delivery as d
    left join pawl.inbox as i on i.consumer = d.consumer and i.key = d.key
    left join pawl.job as j on j.id = i.job_id
   where not starts_with(d.key, 'pawl/')
  ) as r`}
	q.only("r.consumer = %s", a.Consumer)
	q.only("r.received_at >= %s", a.From)
	q.only("r.received_at < %s", a.Until)
	return readPage[T](ctx, db, "delivery.list", q, a.Page, key{"received_at", "timestamptz"}, key{"key", "text"})
}

// Delivery reads the inbox row of one delivery. It returns no row if the inbox does not remember
// it.
func Delivery[T any](ctx context.Context, db DB, consumer, key string) ([]T, error) {
	return lookWhole[T](ctx, db, "delivery.get", `(
  select i.consumer, i.key, i.received_at, i.processed_at, i.job_id, j.status as job_status, i.result_ref, encode(i.hash, 'hex') as fingerprint,
         true as remembered, d.key is not null as kept, octet_length(d.payload) as kept_octets
    from pawl.inbox as i
    left join pawl.job as j on j.id = i.job_id
    left join pawl.delivery as d on d.consumer = i.consumer and d.key = i.key
  ) as r
 where r.consumer = $1
   and r.key = $2`, consumer, key)
}

// InboxMissing returns the keys that a consumer does not remember, in the order given.
func InboxMissing(ctx context.Context, db DB, consumer string, keys []string) ([]string, error) {
	return Look(ctx, db, "inbox.missing", `select k.key
  from unnest($2::text[]) with ordinality as k (key, n)
 where not exists (select from pawl.inbox as i where i.consumer = $1 and i.key = k.key)
 order by k.n`, []any{consumer, keys}, pgx.RowTo[string])
}

// OpenDeliveries counts a consumer's stored deliveries that are open: jobs of the queue that are
// pending, processing, or waiting in their lanes. It counts up to limit. Deliveries held at a
// sequence gate do not count, because they wait for a delivery that has not arrived.
func OpenDeliveries(ctx context.Context, db DB, consumer, queue string, limit int) (open int, err error) {
	err = bounded(ctx, db, func(db DB) error {
		return lookOne(ctx, db, "delivery.open", openDeliveries, []any{consumer, queue, limit}, &open)
	})
	return open, err
}

// Each count reads as many index entries as it counts. Jobs held at a gate may add as many again. A
// lane whose jobs have all ended soon loses its row.
const openDeliveries = `select least($3::int, greatest(0, p.n - h.n) + c.n + w.n)::int
  from (select count(*) as n
          from (select from pawl.sequence_gate_held as h where h.consumer = $1 limit $3 + 1000000) as s) as h
 cross join lateral (
        select count(*) as n
          from (select from pawl.job as j where j.status = 'pending' and j.queue = $2 limit $3 + h.n) as s) as p
 cross join (
        select count(*) as n
          from (select from pawl.job as j where j.claimed_by is not null and j.queue = $2 limit $3) as s) as c
 cross join (
        select count(*) as n
          from (select
                  from pawl.lane as l
                  join pawl.job as j on j.lane_id = l.id and j.status = 'waiting'
                 where l.queue = $2
                 limit $3) as s) as w`
