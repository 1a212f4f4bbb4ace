package worker

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// What is said of arguments that don't decode has nothing of them, whatever the decoder says: with
// GOEXPERIMENT=jsonv2 the path to a field has the keys of maps.
func TestDecodeErrorHasNoPayload(t *testing.T) {
	t.Parallel()
	var args struct {
		Numbers map[string]int `json:"numbers"`
	}
	for name, err := range map[string]error{
		"a key":     json.Unmarshal([]byte(`{"numbers":{"geheim":"x"}}`), &args),
		"a path":    &json.UnmarshalTypeError{Value: "number 4711-geheim", Type: reflect.TypeFor[int](), Offset: 7, Struct: "geheim", Field: "numbers.geheim"},
		"a value":   json.Unmarshal([]byte(`{"numbers":{"k":"geheim"}}`), &args),
		"no JSON":   json.Unmarshal([]byte(`{"numbers":geheim}`), &args),
		"their own": errors.New("geheim"),
	} {
		if got := decodeError(err).Error(); strings.Contains(got, "geheim") || !strings.HasPrefix(got, "decode the job's arguments: ") {
			t.Errorf("%s: %s", name, got)
		}
	}
}
