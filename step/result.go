package step

import (
	"encoding/json"
	"fmt"

	"github.com/pawl-go/pawl"
)

func encode(value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return []byte{}, nil
	case []byte:
		return v, nil
	case json.RawMessage:
		return v, nil
	}
	return json.Marshal(value)
}

// maxResult is the limit of the domain pawl.octets.
const maxResult = 4 << 20

// encodeResult encodes a result. If it cannot be stored or replayed, its call is ambiguous.
func encodeResult(value any) ([]byte, error) {
	stored, err := encode(value)
	if err == nil && len(stored) > maxResult {
		err = fmt.Errorf("it has %d octets, at most %d can be stored", len(stored), maxResult)
	}
	if err != nil {
		return nil, fmt.Errorf("the call was executed, but its result cannot be kept: %w", err)
	}
	return stored, nil
}

func decode[T any](stored []byte) (value T, err error) {
	switch v := any(&value).(type) {
	case *[]byte:
		*v = stored
	case *json.RawMessage:
		*v = stored
	default:
		if len(stored) == 0 {
			return value, nil // settled by hand
		}
		if err = json.Unmarshal(stored, &value); err != nil {
			err = &pawl.Error{Op: "step.decode", Err: fmt.Errorf("the stored result does not decode into %T: %w", value, err),
				Hint: "the type has changed since it was stored; read it as json.RawMessage"}
		}
	}
	return value, err
}
