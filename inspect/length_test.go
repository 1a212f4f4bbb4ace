package inspect_test

import (
	"errors"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// An operator sets the maximum of a queue, and sees it beside the length. A file has it. What a file, or an operator, puts in isn't refused.
func TestMaxLength(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.puts("a", "b", "c")
	s.claim(1)
	s.must(s.ins.SetMaxLength(t.Context(), s.Name(), 3))
	q, err := s.ins.Queue(t.Context(), s.Name())
	if s.must(err); q.MaxLength != 3 || q.Length() != 3 {
		t.Errorf("%d of %d jobs", q.Length(), q.MaxLength)
	}
	file := s.exported()
	to := s.beside()
	to.puts("d", "e")
	if done := to.imports(file, inspect.Importing{Settings: true}); done.Done != 3 {
		t.Errorf("imported %+v", done)
	}
	q, err = s.ins.Queue(t.Context(), to.Name())
	if s.must(err); q.MaxLength != 3 || q.Length() != 5 {
		t.Errorf("imported: %d of %d jobs", q.Length(), q.MaxLength)
	}
	if err := s.ins.SetMaxLength(t.Context(), s.Name(), -1); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("a negative length: %v", err)
	}
	if err := s.ins.SetMaxLength(t.Context(), "nobody", 1); !errors.Is(err, inspect.ErrNoQueue) {
		t.Errorf("a queue that nobody uses: %v", err)
	}
}
