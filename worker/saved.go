package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// savePatience bounds a call that saves, after the end of the handler's context too: a step that has finished is to be saved all the same.
const savePatience = 5 * time.Second

// A saver saves what later deliveries of its job are to have. It has all of that in memory, and writes all of it each time.
type saver struct {
	d    *delivery
	lone bool // a rehearsal: no Redis hears of it

	mu    sync.Mutex
	job   *signalbox.Job // for the codec, which may bind values to it; nil: the record wasn't read yet
	err   error          // why that can't be read
	saved store.Saved
	begun map[string]bool // names that this delivery has used
	dirty bool            // Redis may not have what is saved: a call has failed
	over  bool            // the handler has returned

	result []byte // what the handler says is the job's result, encoded; nil: nothing
}

// saver returns what saves for the delivery. It is made when it is first asked for.
func (d *delivery) saver() *saver {
	if s := d.long.saves.Load(); s != nil {
		return s
	}
	d.long.saves.CompareAndSwap(nil, &saver{d: d, lone: d.slot == nil})
	return d.long.saves.Load()
}

// end has the delivery save nothing more. A call that is under way ends first. It reports whether it has saved something.
func (s *saver) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.dirty { // what a failed call was to save goes with the settlement, if that writes the record
		_ = s.d.claimed.Keep(s.saved.Append(nil))
	}
	return len(s.saved.Steps) > 0 || s.saved.Checkpoint != nil
}

// load reads what the job came with. mu is held.
func (s *saver) load() error {
	if s.job == nil {
		q := s.d.session.queue
		s.job = &signalbox.Job{ID: s.d.id, Namespace: q.w.namespace(), Queue: q.store.Name(), Token: s.d.token}
		if s.err = s.d.claimed.Decoded(s.job); s.err == nil {
			s.saved, s.err = store.DecodeSaved(s.job.Saved)
		}
		s.job.Payload, s.job.Saved = nil, nil
	}
	if s.err != nil {
		return fmt.Errorf("%w: %w", signalbox.ErrStepChanged, s.err)
	}
	return nil
}

// codec returns the one of the job's arguments.
func (s *saver) codec() signalbox.Codec {
	if s.job.Encoding != "" {
		return s.d.session.queue.w.codecs[s.job.Encoding]
	}
	return signalbox.JSON{}
}

// Begin implements [handlerctx.Saver], as do the others below that have its names.
func (s *saver) Begin(ctx context.Context, name string, into any) (done bool, err error) {
	if len(name) == 0 || len(name) > signalbox.MaxStepName || !utf8.ValidString(name) {
		return false, fmt.Errorf("%w: %.80q has %d bytes; 1 to %d bytes of UTF-8 are allowed", signalbox.ErrStepName, name, len(name), signalbox.MaxStepName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return false, err
	}
	if s.begun[name] {
		return false, fmt.Errorf("%w: this delivery has another step %q", signalbox.ErrStepName, name)
	}
	i := s.step(name)
	if i >= 0 {
		if s.dirty { // it was run by this delivery, and a call that was to save it has failed
			if err := s.write(ctx); err != nil {
				return false, err
			}
		}
		if err := s.codec().Decode(s.job, s.saved.Steps[i].Value, into); err != nil {
			return false, fmt.Errorf("%w: step %q: %w", signalbox.ErrStepChanged, name, err)
		}
	}
	if s.begun == nil {
		s.begun = make(map[string]bool)
	}
	s.begun[name] = true
	return i >= 0, nil
}

// step returns the place of a step that has finished, or -1. mu is held.
func (s *saver) step(name string) int {
	for i := range s.saved.Steps {
		if s.saved.Steps[i].Name == name {
			return i
		}
	}
	return -1
}

func (s *saver) End(ctx context.Context, name string, value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	encoded, err := s.codec().Encode(s.job, value)
	if err != nil {
		delete(s.begun, name)
		return fmt.Errorf("signalbox: the value of step %q can't be encoded: %w", name, err)
	}
	s.saved.Steps = append(s.saved.Steps, store.SavedStep{Name: name, Value: encoded})
	if err := s.write(ctx); err != nil {
		delete(s.begun, name)
		if errors.Is(err, signalbox.ErrStateSize) {
			s.saved.Steps = s.saved.Steps[:len(s.saved.Steps)-1]
		}
		return fmt.Errorf("step %q: %w", name, err)
	}
	return nil
}

func (s *saver) Abandon(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.begun, name)
}

func (s *saver) Checkpoint(ctx context.Context, value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return err
	}
	encoded, err := s.codec().Encode(s.job, value)
	if err != nil {
		return fmt.Errorf("signalbox: a checkpoint can't be encoded: %w", err)
	}
	before := s.saved.Checkpoint
	s.saved.Checkpoint = append([]byte{}, encoded...)
	if err := s.write(ctx); err != nil {
		if errors.Is(err, signalbox.ErrStateSize) {
			s.saved.Checkpoint = before
		}
		return fmt.Errorf("a checkpoint: %w", err)
	}
	return nil
}

func (s *saver) Resume(into any) (found bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil || s.saved.Checkpoint == nil {
		return false, err
	}
	if err := s.codec().Decode(s.job, s.saved.Checkpoint, into); err != nil {
		return false, fmt.Errorf("%w: a checkpoint: %w", signalbox.ErrStepChanged, err)
	}
	return true, nil
}

// errReturned is the error of a call that comes too late.
var errReturned = fmt.Errorf("%w: its handler has returned", signalbox.ErrSuperseded)

// SetResult keeps the result in memory: it goes with the settlement, if the job completes and is kept.
func (s *saver) SetResult(value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return errReturned
	}
	_ = s.load() // for the codec's job. Whether what was saved can be read doesn't matter here
	encoded, err := s.codec().Encode(s.job, value)
	if err != nil {
		return fmt.Errorf("signalbox: the result can't be encoded: %w", err)
	}
	if len(encoded) > signalbox.MaxResult {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed; store it elsewhere, and make its name the result", signalbox.ErrResultSize, len(encoded), signalbox.MaxResult)
	}
	s.result = append([]byte{}, encoded...)
	return nil
}

// result returns what the handler has said is the job's result, or nil. The handler has returned.
func (d *delivery) result() []byte {
	if s := d.long.saves.Load(); s != nil {
		return s.result
	}
	return nil
}

// decodeResult decodes the result that is set.
func (s *saver) decodeResult(into any) error { return s.codec().Decode(s.job, s.result, into) }

// write writes all that is saved. mu is held.
func (s *saver) write(ctx context.Context) error {
	if s.over {
		return errReturned
	}
	all := s.saved.Append(nil)
	if len(all) > signalbox.MaxSaved {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed; store the large part elsewhere and save its name", signalbox.ErrStateSize, len(all), signalbox.MaxSaved)
	}
	if s.lone {
		return s.d.claimed.Keep(all)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), savePatience)
	defer cancel()
	q := s.d.session.queue
	err := q.own.Sessions().Save(ctx, s.d.session.id, s.d.id, s.d.token, &s.d.claimed, all)
	s.dirty = err != nil
	if errors.Is(err, store.ErrSuperseded) {
		return signalbox.ErrSuperseded
	}
	return err
}
