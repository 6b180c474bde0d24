package catalog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// A KeySample is a key as the doctor reads it.
type KeySample struct {
	Table string // inbox, command or job_key
	Scope string // the consumer, the command's scope or the queue
	Key   string
	Hash  []byte
	At    time.Time // when the key came
	Again bool      // a key of this scope is known to have come twice in the last seven days
}

// KeySamples returns the newest 300 keys of each of 100 consumers, and 300 from three hours before
// the newest. Of commands and enqueued jobs it returns as many of all scopes together. It reads
// them along indexes, so that its cost does not depend on the sizes of the tables. Pawl's own keys
// are left out.
func KeySamples(ctx context.Context, db DB) ([]KeySample, error) {
	return Look(ctx, db, "doctor.keys", KeySamplesSQL, nil, func(row pgx.CollectableRow) (s KeySample, err error) {
		err = row.Scan(&s.Table, &s.Scope, &s.Key, &s.Hash, &s.At, &s.Again)
		return s, err
	})
}

// KeySamplesSQL jumps from consumer to consumer in the index inbox_age. It is exported for the test
// of its cost.
const KeySamplesSQL = `
with recursive consumers as (
  (select i.consumer, 1 as n from pawl.inbox as i order by i.consumer limit 1)
  union all
  select (select i.consumer from pawl.inbox as i where i.consumer > c.consumer order by i.consumer limit 1), c.n + 1
    from consumers as c
   where c.consumer is not null
     and c.n < 100
), inbox as (
  select i.consumer as scope, i.key, i.hash, i.received_at as at
    from consumers as c
   cross join lateral (
          (select n.* from pawl.inbox as n where n.consumer = c.consumer order by n.received_at desc limit 300)
          union all
          (select o.* from pawl.inbox as o
            where o.consumer = c.consumer
              and o.received_at < (select max(n.received_at) from pawl.inbox as n where n.consumer = c.consumer) - interval '3 hours'
            order by o.received_at desc
            limit 300)) as i
), command as (
  (select n.* from pawl.command as n order by n.created_at desc limit 300)
  union all
  (select o.* from pawl.command as o
    where o.created_at < (select max(n.created_at) from pawl.command as n) - interval '3 hours'
    order by o.created_at desc
    limit 300)
), job_key as (
  (select n.* from pawl.job_key as n order by n.created_at desc limit 300)
  union all
  (select o.* from pawl.job_key as o
    where o.created_at < (select max(n.created_at) from pawl.job_key as n) - interval '3 hours'
    order by o.created_at desc
    limit 300)
), again as (
  select distinct r.scope
    from pawl.rollup as r
   where r.span = 'hour'
     and r.kind = 'count'
     and r.source = 'consumer'
     and r.name = 'duplicate_skipped'
     and r.value > 0
)
select 'inbox', i.scope, i.key, i.hash, i.at, exists (select from again as a where a.scope in (i.scope, ''))
  from (select distinct * from inbox) as i
 where not starts_with(i.key, 'pawl/')
union all
select 'command', c.scope, c.key, c.hash, c.created_at,
       bool_or(c.attempts > 1) over (partition by c.scope) or exists (select from pawl.replay as r where r.scope = c.scope and r.replays > 0)
  from (select distinct d.scope, d.key, d.hash, d.created_at, d.attempts from command as d) as c
union all
select distinct 'job_key', j.queue, j.key, j.hash, j.created_at, false
  from job_key as j
 where j.key !~ '^schedule/.*/[0-9-]{10}T[0-9:]{8}\.[0-9]{6}Z$'
 order by 1, 2, 5, 3`
