package script

import "testing"

// Two builds whose functions differ only in the comments between them accept each other's database.
func TestHash_IgnoresCommentsOutsideOfBodies(t *testing.T) {
	t.Parallel()
	const api = "-- f does it.\ncreate function f() as $$\n  select 1; -- why\n$$;\n"
	for text, same := range map[string]bool{
		"-- f does it, once.\n-- It never waits.\ncreate function f() as $$\n  select 1; -- why\n$$;\n": true,
		"create function f() as $$\n  select 1; -- why\n$$;\n":                                          true,
		"-- f does it.\ncreate function f() as $$\n  select 1; -- why not\n$$;\n":                       false,
		"-- f does it.\ncreate function f() as $$\n  select 2; -- why\n$$;\n":                           false,
		"-- f does it.\ncreate function f() as $$\n  -- why\n  select 1; -- why\n$$;\n":                 false,
	} {
		if (Hash(text) == Hash(api)) != same {
			t.Errorf("the same hash: %t, want %t, of\n%s", !same, same, text)
		}
	}
}
