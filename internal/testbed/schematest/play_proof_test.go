//go:build proof

package schematest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// play adds the verbs of the contract to a database, for the explored scenes and the mutants. Each
// verb records in a ledger, in its own transaction, what it was allowed to do and with which fence.
//
// The note is written under the lock of the job's row, so a job's committed notes are in the order
// in which its row was held. There are no triggers and no unique keys, so that a violation is
// visible instead of refused.
const play = `
create schema play;
create table play.ledger (n bigint generated always as identity primary key, job bigint not null, fence bigint not null, verb text not null);
create table play.effect (what text not null);
create table play.abandoned (job bigint not null, fence bigint not null, worker bigint not null);
` + playLanes + playGates + playSchedules + `

create function play.claim(p_worker bigint, p_limit int default 1, p_options jsonb default '{}') returns text language sql as $$
  with c as (select c.id, c.fence from pawl_v1.job_claim('q', p_worker, p_limit, p_options) as c),
       l as (insert into play.ledger (job, fence, verb) select c.id, c.fence, 'claim' from c returning job, fence)
  select coalesce(string_agg(l.job || ':' || l.fence, ' ' order by l.job), '') from l $$;

create function play.claim_id(p_id bigint, p_worker bigint) returns text language sql as $$
  with c as (select * from pawl_v1.job_claim_id(p_id, p_worker)),
       l as (insert into play.ledger (job, fence, verb) select c.id, c.fence, 'claim' from c where c.outcome = 'claimed')
  select c.outcome from c $$;

create function play.hold(p_id bigint, p_fence bigint) returns text language sql as $$
  with c as (select * from pawl_v1.job_hold(p_id, p_fence)),
       l as (insert into play.ledger (job, fence, verb) select p_id, p_fence, 'hold' from c)
  select c.outcome from c $$;

create function play.hold_many(p_ids bigint[], p_fences bigint[]) returns text language sql as $$
  with c as (select c.id, c.outcome, g.fence from pawl_v1.job_hold_many(p_ids, p_fences) as c
               join unnest(p_ids, p_fences) as g (id, fence) on g.id = c.id),
       l as (insert into play.ledger (job, fence, verb) select c.id, c.fence, 'hold' from c where c.outcome = 'held')
  select string_agg(c.id || ':' || c.outcome, ' ' order by c.id) from c $$;

create function play.effect(p_id bigint) returns void language sql as $$
  insert into play.effect (what) values ('job ' || p_id) $$;

create function play.end(p_id bigint, p_fence bigint) returns text language sql as $$
  with c as (select * from pawl_v1.job_finish(p_id, p_fence)),
       l as (insert into play.ledger (job, fence, verb) select p_id, p_fence, 'finish' from c)
  select c.outcome || coalesce(play.tell(c.detail)::text, '') from c $$;

-- The effect, then the end, in one transaction, as a handler does.
create function play.finish(p_id bigint, p_fence bigint) returns text language sql as $$
  select play.effect(p_id);
  select play.end(p_id, p_fence) $$;

create function play.finish_many(p_ids bigint[], p_fences bigint[], p_options jsonb default '{}') returns text language sql as $$
  with c as (select c.id, c.outcome, g.fence, c.detail from pawl_v1.job_finish_many(p_ids, p_fences, p_options) as c
               join unnest(p_ids, p_fences) as g (id, fence) on g.id = c.id),
       l as (insert into play.ledger (job, fence, verb) select c.id, c.fence, 'finish' from c where c.outcome = 'finished'),
       e as (insert into play.effect (what) select 'job ' || c.id from c where c.outcome = 'finished')
  select string_agg(c.id || ':' || c.outcome || coalesce(play.tell(c.detail)::text, ''), ' ' order by c.id) from c $$;

create function play.fail(p_id bigint, p_fence bigint, p_options jsonb) returns text language sql as $$
  with c as (select * from pawl_v1.job_fail(p_id, p_fence, '{}', p_options)),
       l as (insert into play.ledger (job, fence, verb) select p_id, p_fence, c.outcome from c)
  select c.outcome || coalesce(play.tell(c.detail)::text, '') from c $$;

create function play.release(p_id bigint, p_fence bigint) returns text language sql as $$
  with c as (select * from pawl_v1.job_release(p_id, p_fence)),
       l as (insert into play.ledger (job, fence, verb) select p_id, p_fence, 'release' from c where c.outcome = 'released')
  select c.outcome from c $$;

create function play.renew(p_id bigint, p_fence bigint) returns text language sql as $$
  with c as (select * from pawl_v1.job_renew(p_id, p_fence)),
       l as (insert into play.ledger (job, fence, verb) select p_id, p_fence, 'renew' from c)
  select c.outcome from c $$;

create function play.accept(p_fence bigint) returns text language sql as $$
  with c as (select * from pawl_v1.fence_accept('resource', p_fence)),
       l as (insert into play.ledger (job, fence, verb) select 0, p_fence, 'accept' from c)
  select c.outcome from c $$;

-- job_sweep and worker_leave do not return the jobs that they take back, which are the rows that
-- this transaction wrote.
create function play.note_taken() returns void language sql as $$
  insert into play.ledger (job, fence, verb)
  select j.id, j.fence, case j.status when 'pending' then 'taken' else j.status end
    from pawl.job as j
   where j.xmin::text = pg_current_xact_id()::text
     and j.fence > 0 -- else it was promoted in its lane
     and j.status <> 'processing' $$;

create function play.sweep() returns text language plpgsql as $$
declare
  v_said text;
begin
  select s.outcome || ' ' || s.requeued || ' ' || s.dead_lettered || coalesce(play.tell(s.detail)::text, '') into v_said from pawl_v1.job_sweep('{k}') as s;
  perform play.note_taken();
  return v_said;
end $$;

create function play.leave(p_worker bigint) returns text language plpgsql as $$
declare
  v_said text;
begin
  select l.outcome || ' ' || l.released into v_said from pawl_v1.worker_leave(p_worker) as l;
  perform play.note_taken();
  return v_said;
end $$;

-- A stop that abandons the handlers of these jobs.
create function play.abandon(p_worker bigint, p_ids bigint[]) returns text language plpgsql as $$
declare
  v_said text;
begin
  insert into play.abandoned (job, fence, worker)
  select j.id, j.fence, p_worker from pawl.job as j where j.id = any (p_ids) and j.claimed_by = p_worker;
  select l.outcome || ' ' || l.released into v_said from pawl_v1.worker_leave(p_worker, jsonb_build_object('abandoned', p_ids)) as l;
  perform play.note_taken();
  return v_said;
end $$;

-- An operator's verb on a job. Its fence is the one after that in the verb's audit record.
create function play.operate(p_verb text, p_id bigint default 1) returns text language plpgsql as $$
declare
  v_outcome text;
  v_detail  jsonb;
begin
  execute format('select o.outcome, o.detail from pawl_v1.%I($1, ''ann'', ''a reason'') as o', 'job_' || p_verb)
     into v_outcome, v_detail
    using p_id;
  perform play.tell(v_detail);
  if v_outcome in ('retried', 'cancelled', 'discarded') then
    insert into play.ledger (job, fence, verb)
    select p_id, (a.before ->> 'fence')::bigint + 1, 'operator ' || v_outcome
      from pawl.audit as a where a.target = 'job ' || p_id order by a.id desc limit 1;
  end if;
  return v_outcome;
end $$;

-- A delivery whose handler works in the transaction of the claim.
create function play.deliver(p_payload text) returns text language sql as $$
  with c as (select * from pawl_v1.inbox_claim('c', 'm', sha256(p_payload::bytea))),
       e as (insert into play.effect (what) select 'message m' from c where c.outcome = 'processed')
  select c.outcome from c $$;

-- A delivery that is stored as a job.
create function play.store() returns text language plpgsql as $$
declare
  v_said text;
begin
  select c.outcome into v_said from pawl_v1.inbox_claim('c', 'm', sha256('one')) as c;
  if v_said = 'processed' then
    select l.outcome into v_said from pawl_v1.inbox_store('c', 'm', 'q', 'stored', '') as l;
  end if;
  return v_said;
end $$;

-- An operator replays the delivery. A retried job has a new fence, as in play.operate.
create function play.replay() returns text language plpgsql as $$
declare
  v_said record;
begin
  select r.outcome, r.job_id, r.detail into v_said from pawl_v1.inbox_replay('c', 'm', 'ann', 'a reason') as r;
  if v_said.outcome = 'replayed' and v_said.detail ? 'status' then
    insert into play.ledger (job, fence, verb)
    select v_said.job_id, (a.before ->> 'fence')::bigint + 1, 'operator retried'
      from pawl.audit as a where a.target = 'job ' || v_said.job_id order by a.id desc limit 1;
  end if;
  return v_said.outcome;
end $$;

-- An attempt of the delivery's job settles the delivery and writes its effect.
create function play.settle(p_id bigint, p_fence bigint) returns text language plpgsql as $$
begin
  perform play.hold(p_id, p_fence);
  perform pawl_v1.inbox_settle('c', 'm', p_id);
  return play.finish(p_id, p_fence);
end $$;

-- The payload of a job is its key, so that two jobs of one key are visible. The hash identifies the
-- payload.
create function play.enqueue(p_key text, p_hash text) returns text language sql as $$
  select e.outcome from pawl_v1.job_enqueue('q', 'k', p_key::bytea,
    jsonb_build_object('key', p_key, 'hash', encode(sha256(p_hash::bytea), 'hex'))) as e $$;

create function play.enqueue_many(p_keys text[]) returns text language sql as $$
  select string_agg(e.outcome, ' ' order by e.n)
    from (select array_agg('q'::text) as q, array_agg('k'::text) as k, array_agg(u.key::bytea order by u.n) as payloads
            from unnest(p_keys) with ordinality as u (key, n)) as a,
         pawl_v1.job_enqueue_many(a.q, a.k, a.payloads, p_keys) as e $$;

-- Replaces a part of a function, which must occur once, so that no mutant silently stops being one.
create function play.replace(p_function regproc, p_old text, p_new text) returns void language plpgsql as $$
declare
  v_source text := pg_get_functiondef(p_function);
  v_found  int := (length(v_source) - length(replace(v_source, p_old, ''))) / length(p_old);
begin
  if v_found <> 1 then
    raise exception '% holds this % times: %', p_function, v_found, p_old;
  end if;
  execute replace(v_source, p_old, p_new);
end $$;

-- Nothing here may depend on time: a session waits until it is released, and a requeued job is due
-- at once.
select play.replace('pawl_v1.job_sweep', 'random() *', '0 *');
do $$
declare
  v_patient text;
begin
  for v_patient in
    select p.oid::regprocedure from pg_proc as p
     where p.pronamespace = 'pawl_v1'::regnamespace and p.proconfig::text like '%lock_timeout%'
  loop
    execute 'alter function ' || v_patient || ' set lock_timeout = ''60s''';
  end loop;
end $$;

-- Violations in the rows, written by any session.
create view play.odd as
select 'p_once' as property, e.what || ' has ' || count(*) || ' effects' as what
  from play.effect as e group by e.what having count(*) > 1
union all
select 'p_done', coalesce(e.what, l.what) || ': effect without its end, or end without its effect'
  from (select distinct e.what from play.effect as e where e.what like 'job%') as e
  full join (select distinct 'job ' || l.job as what from play.ledger as l where l.verb = 'finish') as l on l.what = e.what
 where e.what is null or l.what is null
union all
select 'p_done', 'message m: ' || e.n || ' effects, ' || i.n || ' rows, ' || i.stored || ' stored, ' || j.n || ' jobs'
  from (select count(*) as n from play.effect as e where e.what = 'message m') as e,
       (select count(*) as n, count(i.job_id) as stored,
               count(*) filter (where i.job_id is not null and i.processed_at is null
                                  and not exists (select from play.ledger as l where l.job = i.job_id and l.verb = 'operator discarded')) as owned
          from pawl.inbox as i where i.consumer = 'c') as i,
       (select count(*) as n from pawl.job as j where j.kind = 'stored') as j
 where e.n <> i.n - i.stored or j.n <> i.owned
union all
select 'p_once', 'key ' || k.key || ' has ' || count(j.id) || ' jobs'
  from pawl.job_key as k left join pawl.job as j on j.payload = k.key::bytea
 where k.key not like 'schedule/%' -- see play.odd_schedules
 group by k.key, k.job_id having count(j.id) <> 1 or min(j.id) <> k.job_id
union all
select 'p_loss', 'job ' || j.id || ' is held by worker ' || j.claimed_by || ', who has left: nobody will take it back'
  from pawl.job as j
 where j.claimed_by <> 0
   and not exists (select from pawl.worker as w where w.id = j.claimed_by)
union all
select 'p_loss', 'job ' || a.job || ' was abandoned by worker ' || a.worker || ', which is not marked as gone'
  from play.abandoned as a
  join pawl.job as j on j.id = a.job and j.claimed_by = a.worker
  join pawl.worker as w on w.id = a.worker
 where isfinite(w.seen_at)
union all
select 'p_charge', 'job ' || j.id || ' was abandoned; it has ' || j.crashes || ' crashes and ' || j.attempts || ' attempts'
  from play.abandoned as a
  join pawl.job as j on j.id = a.job
 where j.fence > a.fence and j.crashes = 0
    or j.fence = a.fence and j.status = 'pending' and (j.crashes = 0 or j.attempts > 0)
union all
select 'p_loss', 'job ' || j.id || ' has no key'
  from pawl.job as j where j.payload <> '' and not exists (select from pawl.job_key as k where k.job_id = j.id);

create function play.reset() returns void language sql as $$
  delete from play.ledger; delete from play.effect; delete from play.abandoned; delete from pawl.inbox; delete from pawl.job_key; delete from pawl.fence;
  delete from pawl.job; delete from pawl.worker; delete from pawl.audit;
  select setval('pawl.job_id_seq', 1, false), setval('pawl.worker_id_seq', 1, false);
  select play.reset_lanes(); select play.reset_gates(); select play.reset_schedules() $$;
` + memoryPlay + openPlay + exchangePlay + ownPlay + commandPlay + stepPlay

// A violation is a violated property, by its name in docs/reference/mutants.md.
type violation struct{ property, what string }

func (v violation) Error() string { return v.property + ": " + v.what }

// judge reads the ledger and the rows and returns the first violation.
func judge(ctx context.Context, conn *pgx.Conn) error {
	odd, err := collect(ctx, conn, "select o.property, o.what from play.odd as o union all select o.property, o.what from play.odd_gates as o union all select o.property, o.what from play.odd_schedules as o union all select o.property, o.what from play.odd_memory as o", func(row pgx.CollectableRow) (v violation, err error) {
		return v, row.Scan(&v.property, &v.what)
	})
	if err != nil {
		return err
	}
	if len(odd) > 0 {
		return odd[0]
	}
	notes, err := collect(ctx, conn, "select l.job, l.fence, l.verb from play.ledger as l order by l.n", func(row pgx.CollectableRow) (n note, err error) {
		return n, row.Scan(&n.job, &n.fence, &n.verb)
	})
	if err != nil {
		return err
	}
	told, err := tell(notes)
	if err != nil {
		return err
	}
	rows, err := collect(ctx, conn, "select j.id, j.fence, j.status from pawl.job as j", func(row pgx.CollectableRow) (n note, err error) {
		return n, row.Scan(&n.job, &n.fence, &n.verb)
	})
	if err != nil {
		return err
	}
	if err := told.match(rows); err != nil {
		return err
	}
	if err := judgeCommands(ctx, conn); err != nil {
		return err
	}
	if err := judgeSteps(ctx, conn); err != nil {
		return err
	}
	return judgeLanes(ctx, conn)
}

func collect[T any](ctx context.Context, conn *pgx.Conn, query string, one pgx.RowToFunc[T]) ([]T, error) {
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, one)
}

// A note is one line of the ledger: an accepted verb with its fence.
type note struct {
	job, fence int64
	verb       string
}

// A life is the state of a job after some notes.
type life struct {
	newest int64 // the newest fence issued
	held   bool
	ended  string // the verb that ended it
}

type lives map[int64]*life

// tell replays the ledger through the possible states of a job. It shares no code with the
// functions that it judges.
func tell(notes []note) (lives, error) {
	told := lives{}
	for _, n := range notes {
		if told[n.job] == nil {
			told[n.job] = &life{}
		}
		if property := told[n.job].next(n); property != "" {
			return nil, violation{property, fmt.Sprintf("job %d: %s with fence %d was accepted; %v", n.job, n.verb, n.fence, notes)}
		}
	}
	return told, nil
}

// next applies one note and returns the property that it violates, or "".
func (l *life) next(n note) (property string) {
	switch {
	case n.verb == "accept": // a resource has no holder, only a newest fence
		if n.fence < l.newest {
			return "p_fence"
		}
		l.newest = n.fence
		return ""
	case n.verb == "operator unblocked": // the job's turn is over; nothing else changes
		return ""
	case strings.HasPrefix(n.verb, "operator "): // a new generation, also after the end
		if n.fence <= l.newest {
			return "p_fence"
		}
		if l.ended == "finish" || l.ended == "discarded" {
			return "p_term"
		}
		*l = life{newest: n.fence, ended: strings.TrimPrefix(strings.TrimPrefix(n.verb, "operator "), "retried")}
		return ""
	case l.ended != "":
		return "p_term"
	case n.verb == "claim":
		if l.held {
			return "p_excl"
		}
		if n.fence <= l.newest {
			return "p_fence"
		}
		l.newest, l.held = n.fence, true
		return ""
	case n.fence != l.newest:
		return "p_fence"
	case !l.held:
		return "p_held"
	}
	l.held = slices.Contains([]string{"hold", "renew"}, n.verb)
	if slices.Contains([]string{"finish", "cancelled", "dead_letter"}, n.verb) {
		l.ended = n.verb
	}
	return ""
}

// match compares the ledger with the existing rows.
func (told lives) match(rows []note) error {
	there := map[int64]note{}
	for _, row := range rows {
		if row.verb == "waiting" { // waiting in its lane counts as pending
			row.verb = "pending"
		}
		there[row.job] = row
	}
	for job, l := range told {
		row, found := there[job]
		want := "pending"
		switch {
		case job == 0 || l.ended == "finish" || l.ended == "discarded":
			want = ""
		case l.ended != "":
			want = l.ended
		case l.held:
			want = "processing"
		}
		if row.verb != want || found && row.fence != l.newest {
			return violation{"p_term", fmt.Sprintf("job %d is %q with fence %d, the ledger says %q with %d", job, row.verb, row.fence, want, l.newest)}
		}
	}
	return nil
}
