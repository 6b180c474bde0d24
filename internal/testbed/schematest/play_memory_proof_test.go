//go:build proof

package schematest_test

// memoryPlay redelivers a message after days, concurrently with purges and reports. Consumer d
// promises a retention of ten days. Its purge by hand deletes rows older than one day.
const memoryPlay = `
create table play.reported (until timestamptz); -- by reports that committed

-- A delivery of two days ago. A session that finds it new checks the retention before handling it.
create function play.late() returns text language plpgsql as $$
declare
  v_said  text;
  v_until timestamptz;
begin
  select c.outcome into v_said from pawl_v1.inbox_claim('d', 'm', sha256('one')) as c;
  if v_said = 'processed' then
    select m.forgotten_until into v_until from pawl_v1.inbox_memory('d') as m;
    if v_until >= (select s.at from play.sent as s) then
      return 'stale';
    end if;
    insert into play.effect (what) values ('message of d');
  end if;
  return v_said;
end $$;

create table play.sent (at timestamptz);

create function play.promise() returns text language plpgsql as $$
declare
  v_said text;
begin
  with r as (select * from pawl_v1.consumer_report('d', 864000000)),
       t as (insert into play.reported (until) select (r.detail ->> 'forgotten_until')::timestamptz from r)
  select r.outcome into v_said from r;
  return v_said;
end $$;

create function play.forget() returns text language sql as $$
  select p.outcome from pawl_v1.inbox_purge('d', 86400000, 10, '{"unreported": true}') as p $$;

create function play.reset_memory() returns void language sql as $$
  delete from pawl.forgotten; delete from pawl.consumer; delete from play.reported; delete from play.sent $$;

-- After a report, a row younger than the reported retention is purged only if the report said so.
create view play.odd_memory as
select 'p_memory' as property, 'told until ' || coalesce(t.until::text, 'never') || ', forgotten until ' || f.until as what
  from play.reported as t
  join pawl.forgotten as f on f.until > coalesce(t.until, '-infinity') and f.until > clock_timestamp() - interval '10 days'
 where f.consumer = 'd';
`

// The message of seen took effect two days ago. That of sentThen was sent then and has not arrived
// yet.
const (
	sentThen = "delete from play.sent; insert into play.sent values (clock_timestamp() - interval '2 days');"
	seen     = sentThen + "select play.late(); update pawl.inbox set received_at = (select s.at from play.sent as s) + interval '1 minute';"
)

// reportedLongAgo has a consumer whose promise has expired.
const reportedLongAgo = "select play.promise(); delete from play.reported; update pawl.consumer set seen_at = clock_timestamp() - interval '11 days';"

var memoryScenes = []scene{
	{name: "late, late", given: sentThen, sides: [][]string{{"select play.late()"}, {"select play.late()"}}},
	{name: "late, purge", given: seen, sides: [][]string{{"select play.late()"}, {"select play.forget()"}}},
	{name: "late, purge aborted", given: seen, sides: [][]string{{"select play.late()"}, {"select play.forget()", rollback}}},
	{name: "late after a purge, purge", given: seen + "select play.forget();", sides: [][]string{{"select play.late()"}, {"select play.forget()"}}},
	{name: "late, purge, report", refusal: []string{"P4004"}, given: seen, sides: [][]string{{"select play.late()"}, {"select play.forget()"}, {"select play.promise()"}}},
	{name: "late, late, purge", given: seen, sides: [][]string{{"select play.late()"}, {"select play.late()"}, {"select play.forget()"}}},
	{name: "purge, purge", given: seen, sides: [][]string{{"select play.forget()"}, {"select play.forget()"}}},
	{name: "report, purge", refusal: []string{"P4004"}, given: seen, sides: [][]string{{"select play.promise()"}, {"select play.forget()"}}},
	{name: "report after a report, purge", refusal: []string{"P4004"}, given: seen + reportedLongAgo, sides: [][]string{{"select play.promise()"}, {"select play.forget()"}}},
	{name: "report aborted, purge", refusal: []string{"P4004"}, given: seen, sides: [][]string{{"select play.promise()", rollback}, {"select play.forget()"}}},
	{name: "report, report, purge", refusal: []string{"P4004"}, given: seen, sides: [][]string{{"select play.promise()"}, {"select play.promise()"}, {"select play.forget()"}}},
}

var memoryMutants = []mutant{
	{name: "a purge does not say what it has forgotten", property: "p_once", scene: "late, purge", edits: []edit{{"inbox_purge", "  if v_purged > 0 then", "  if false then"}}},
	{name: "a purge looks at the promise before it has entered", property: "p_memory", scene: "report, purge", edits: []edit{
		{"inbox_purge", "  perform pawl_v1._memory_enter(p_consumer);\n", ""},
		{"inbox_purge", "    update pawl.forgotten as f\n       set until = greatest(f.until, v_next)\n     where f.consumer = p_consumer;", "    insert into pawl.forgotten as f (consumer, until) values (p_consumer, v_next) on conflict (consumer) do update set until = greatest(f.until, v_next);"}}},
	{name: "a report does not wait for a purge", property: "p_memory", scene: "report after a report, purge", edits: []edit{
		{"_memory_enter", "  insert into pawl.forgotten as f (consumer)\n  values (p_consumer)\n      on conflict (consumer) do update\n     set ver = f.ver + 1\n  returning f.until\n       into v_until;\n",
			"  insert into pawl.forgotten as f (consumer) values (p_consumer) on conflict do nothing;\n  select f.until into v_until from pawl.forgotten as f where f.consumer = p_consumer;\n"}}},
	{name: "what is forgotten is read in an old snapshot", property: "p_once", scene: "late, purge", level: levels[1], edits: []edit{{"inbox_memory", "<> 'read committed'", "= ''"}}},
	{name: "a first purge is overlooked", property: "p_once", scene: "late, purge", level: levels[1], edits: []edit{
		{"inbox_memory", "      insert into pawl.forgotten (consumer)\n      values (p_consumer)\n          on conflict do nothing;\n      if found then",
			"      perform from pawl.forgotten as f where f.consumer = p_consumer for share;\n      if false then"}}},
}
