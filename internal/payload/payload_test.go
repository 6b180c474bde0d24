package payload_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/pawl-go/pawl/internal/payload"
)

type order struct{ ID string }

// Null is refused for a struct. A type that can be nil accepts it, and an Unmarshaler decides for
// itself.
func TestDecode_Null(t *testing.T) {
	t.Parallel()
	for _, octets := range []string{"null", " null\n"} {
		refused := map[string]error{
			"struct": payload.Decode([]byte(octets), new(order)),
			"array":  payload.Decode([]byte(octets), new([2]int)),
			"int":    payload.Decode([]byte(octets), new(int)),
			"string": payload.Decode([]byte(octets), new(string)),
		}
		for name, err := range refused {
			if !errors.Is(err, payload.ErrNull) {
				t.Errorf("%q into a %s: %v", octets, name, err)
			}
		}
		taken := map[string]error{
			"pointer": payload.Decode([]byte(octets), new(*order)),
			"map":     payload.Decode([]byte(octets), new(map[string]int)),
			"slice":   payload.Decode([]byte(octets), new([]int)),
			"any":     payload.Decode([]byte(octets), new(any)),
			"itself":  payload.Decode([]byte(octets), new(json.RawMessage)),
		}
		for name, err := range taken {
			if err != nil {
				t.Errorf("%q into a %s: %v", octets, name, err)
			}
		}
	}
	if err := payload.Decode([]byte("{"), new(order)); err == nil || errors.Is(err, payload.ErrNull) {
		t.Errorf("no JSON: %v", err)
	}
}
