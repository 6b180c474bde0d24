package jsonptr_test

import (
	"encoding/json"
	"testing"

	"github.com/pawl-go/pawl/transport/internal/jsonptr"
)

const document = `{"a": {"b": ["x", 7.50, "", null]}, "m~n": "tilde", "o/p": "slash", "~1": "both", "01": "zero"}`

func TestTextAt(t *testing.T) {
	t.Parallel()
	for pointer, want := range map[string]string{
		"/a/b/0": "x", "/a/b/1": "7.50", "/m~0n": "tilde", "/o~1p": "slash", "/~01": "both", "/01": "zero",
		"/a/b/2": "", "/a/b/3": "", "/a/b/4": "", "/a/b/-1": "", "/a/b/01": "", "/a/b/+1": "", "/a": "", "/nobody": "", "/a/b/0/c": "", "/": "",
	} {
		if err := jsonptr.Check(pointer); err != nil {
			t.Errorf("%s: %v", pointer, err)
		}
		if got, ok := jsonptr.TextAt([]byte(document), pointer); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %t, want %q", pointer, got, ok, want)
		}
	}
	for _, body := range []string{"", "{", `{"a": 1} {"a": 1}`, "no"} {
		if got, ok := jsonptr.TextAt([]byte(body), "/a"); ok {
			t.Errorf("%s: %q", body, got)
		}
	}
}

func TestCheck_Refuses(t *testing.T) {
	t.Parallel()
	for _, pointer := range []string{"", "a", "a/b", "/a~", "/a~2", "/~0~"} {
		if jsonptr.Check(pointer) == nil {
			t.Errorf("%q is taken", pointer)
		}
	}
}

// Remove deletes object members. It keeps array elements, because deleting one would renumber the
// others.
func TestRemove(t *testing.T) {
	t.Parallel()
	value, err := jsonptr.Decode([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	for _, pointer := range []string{"/m~0n", "/a/b/0", "/a/nobody", "/nobody/at/all", "/~01", "/o~1p", "/01"} {
		jsonptr.Remove(value, pointer)
	}
	got, err := json.Marshal(value)
	if err != nil || string(got) != `{"a":{"b":["x",7.50,"",null]}}` {
		t.Errorf("%s, %v", got, err)
	}
}
