package scheduler

import (
	"fmt"
	"strings"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// A Ref names a job: the one with an ID in a queue of a namespace. [Result.Ref] returns it, and [Scheduler.Status] says how the job is. That of [Batch.Ref] names a batch, for [Scheduler.BatchStatus]. It goes as text, by String or in JSON, to where somebody asks for
// the job later: [ParseRef] reads it.
//
// The text is no secret, and isn't signed: who can write one may name any job. So check whether the job is one that its reader may see. A Ref names what has the ID: after the job has
// ended, another one may get it; a job that was moved to another queue isn't found by it.
type Ref struct {
	Namespace string // "default" if nobody has said another
	Queue     string
	ID        string
}

// Ref returns the reference of the job: of Existing if that kept this one out, else of ID. It is the zero Ref if an argument or an option was wrong, so that there is no job.
func (r *Result) Ref() Ref {
	if r.queue == nil {
		return Ref{}
	}
	id := r.ID
	if r.Existing != "" {
		id = r.Existing
	}
	return Ref{Namespace: r.queue.Namespace(), Queue: r.queue.Name(), ID: id}
}

// String returns the reference as {namespace:queue}id: at most 604 bytes of printable ASCII without spaces. In a URL it must be escaped. That of the zero Ref is "".
func (r Ref) String() string {
	if r == (Ref{}) {
		return ""
	}
	return "{" + r.Namespace + ":" + r.Queue + "}" + r.ID
}

// MarshalText returns what String returns. The error wraps [signalbox.ErrInvalid] if there can't be such a job.
func (r Ref) MarshalText() ([]byte, error) {
	if r == (Ref{}) {
		return nil, nil
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText reads what MarshalText has written: no text is the zero Ref. The errors are those of [ParseRef].
func (r *Ref) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*r = Ref{}
		return nil
	}
	ref, err := ParseRef(string(text))
	if err == nil {
		*r = ref
	}
	return err
}

// ParseRef reads what String of a Ref has returned. It doesn't ask Redis: whether there is such a job, [Scheduler.Status] says. The error wraps [signalbox.ErrInvalid] for any other text, also one
// with a namespace, a queue or an ID that there can't be.
func ParseRef(text string) (Ref, error) {
	home, id, found := strings.Cut(text, "}")
	namespace, queue, named := strings.Cut(strings.TrimPrefix(home, "{"), ":")
	if !found || !named || !strings.HasPrefix(text, "{") {
		return Ref{}, fmt.Errorf("scheduler: %w reference of a job: %.80q; want {namespace:queue}id, as String of a Ref returns it", signalbox.ErrInvalid, text)
	}
	ref := Ref{Namespace: namespace, Queue: queue, ID: id}
	if err := ref.check(); err != nil {
		return Ref{}, err
	}
	return ref, nil
}

// check returns an error that wraps [signalbox.ErrInvalid] if there can be no such job.
func (r Ref) check() error {
	err := layout.ValidateNamespace(r.Namespace)
	if r.Namespace == "" {
		err = fmt.Errorf("%w namespace: it is empty", signalbox.ErrInvalid)
	}
	if err == nil {
		err = layout.ValidateQueue(r.Queue)
	}
	if err == nil {
		err = layout.ValidateID(r.ID)
	}
	if err != nil {
		return fmt.Errorf("scheduler: reference of a job: %w", err)
	}
	return nil
}
