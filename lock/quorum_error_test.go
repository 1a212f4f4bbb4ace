package lock

import (
	"errors"
	"strings"
	"testing"
)

func TestQuorumErrorTellsAll(t *testing.T) {
	t.Parallel()
	err := error(&QuorumError{Op: "acquire", Key: "k", Need: 3, Held: 2, Nodes: []NodeError{
		{"a:1", errMine}, {"b:1", ErrInvalid},
	}})
	if want := `lock: acquire "k": needs 3 nodes, has 2 (a:1: ` + errMine.Error() + `; b:1: ` + ErrInvalid.Error() + `)`; err.Error() != want {
		t.Errorf("%v\nwant %v", err, want)
	}
	var n NodeError
	if !errors.Is(err, errMine) || !errors.Is(err, ErrInvalid) || errors.Is(err, ErrHeld) || !errors.As(err, &n) || n.Node != "a:1" {
		t.Errorf("%+v", err)
	}
	if text := (&QuorumError{Op: "check", Need: 1}).Error(); !strings.HasPrefix(text, "lock: check: needs 1") {
		t.Error(text)
	}
}
