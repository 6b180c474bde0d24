package jcs

import (
	"encoding/json"
	"strings"
	"testing"
)

// The examples of RFC 8785, sections 3.2.2 and 3.2.3, and the number samples of appendix B. The
// document in 3.2.2 begins with the number 333333333.33333329. Canonical refuses it, because a
// double rounds it to 333333333.3333333.
func TestCanonical_RFC8785(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{`{
  "numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`, `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`},
		{`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			"{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}"},
		{`[0, -0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308, 9007199254740991, 295147905179352830000.0, 999999999999999900000.0, 1e21, 0.000001, 9.999999999999997e-7, 333333333.33333325, 1424953923781206.2]`,
			`[0,0,0,5e-324,-5e-324,1.7976931348623157e+308,9007199254740991,295147905179352830000,999999999999999900000,1e+21,0.000001,9.999999999999997e-7,333333333.33333325,1424953923781206.2]`},
		{` "x" `, `"x"`},
	} {
		got, err := Canonical([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
		} else if string(got) != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestCanonical_RefusesWhatItCannotKeepApart(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"repeated member":     `{"a":1,"a":2}`,
		"repeated, escaped":   `{"a":1,"\u0061":2}`,
		"rounded integer":     `9007199254740993`,
		"infinite":            `1e400`,
		"invalid UTF-8":       "\"\xff\"",
		"lone high surrogate": `"\ud83d"`,
		"lone low surrogate":  `"\ude00x"`,
		"two values":          `1 2`,
		"truncated":           `{"a":[1,`,
		"trailing comma":      `[1,]`,
		"empty":               ``,
		"too deep":            strings.Repeat("[", maxDepth+2) + strings.Repeat("]", maxDepth+2),
	} {
		if got, err := Canonical([]byte(in)); err == nil {
			t.Errorf("%s: accepted as %s", name, got)
		}
	}
}

// Canonical output is valid JSON and is its own canonical form.
func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"b":[1,2.50,{"x":"\ud83d\ude00\\"}],"a":null}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		once, err := Canonical(doc)
		if err != nil {
			return
		}
		if !json.Valid(once) {
			t.Fatalf("not JSON: %q", once)
		}
		twice, err := Canonical(once)
		if err != nil || string(twice) != string(once) {
			t.Fatalf("not stable: %q then %q, %v", once, twice, err)
		}
	})
}
