package adopt

import "testing"

// All steps on a copy lose and double nothing. Planted mistakes are counted.
func TestRehearse(t *testing.T) {
	t.Parallel()
	b := setup(t, example+`
insert into processed_messages (message_id, body)
select 'message-' || n, convert_to('{"cents": ' || n || '}', 'UTF8') from generate_series(1, 200) as n`)
	table := b.find(Choice{Table: "processed_messages", Consumer: "payments", Payload: "body"})
	p := b.rehearse(table, "")
	if p.Messages != 200 || p.Lost != 0 || p.Doubled != 0 || p.Deaths == 0 || len(p.Left) > 0 || len(p.Played) != 4 {
		t.Errorf("%+v", p)
	}
	for _, fault := range []string{"select", "no backfill", "no copy"} {
		if p := b.rehearse(table, fault); p.Doubled == 0 || len(p.Examples) == 0 {
			t.Errorf("the fault %q is not seen: %+v", fault, p)
		}
	}
	b.want(200, "select count(*) from processed_messages")
	b.want(0, "select count(*) from pawl.inbox")
}
