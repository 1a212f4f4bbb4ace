package store

import (
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// ErrStopped is the error of a call that was not sent because of Lane.Stop.
var ErrStopped = errors.New("store: the call was given up before it was sent")

// sending knows whether a call of a lane was given to a connection. That is not known otherwise: the client repeats a call by itself,
// and returns only the last error. sending is an argument of the call. So the client calls its MarshalBinary each time it writes the
// call.
type sending struct {
	number  int64
	by      Reckoning // the reckoning of a call with ticks
	text    [44]byte
	writes  atomic.Int32
	stopped atomic.Bool
}

// MarshalBinary returns the protocol and the number of the call in its lane, in decimal digits. The reckoning follows if it is known.
func (s *sending) MarshalBinary() ([]byte, error) {
	s.writes.Add(1) // before the check, so that Stop sees it
	if s.stopped.Load() {
		s.writes.Add(-1)
		return nil, ErrStopped
	}
	return s.append(s.text[:0]), nil
}

func (s *sending) append(text []byte) []byte {
	text = append(strconv.AppendInt(text, layout.Protocol, 10), ' ')
	text = strconv.AppendInt(text, s.number, 10)
	if s.by.Known {
		text = strconv.AppendInt(append(text, ' '), s.by.Skew.Microseconds(), 10)
	}
	return text
}

// String returns the same as MarshalBinary, for hooks of the client that print calls.
func (s *sending) String() string { return string(s.append(nil)) }

// Rearm sets the count to zero for the next try of the call. No other try is under way.
func (s *sending) Rearm() {
	s.writes.Store(0)
	s.stopped.Store(false)
}

// Writes returns how often the call was given to a connection since Rearm. If it is 0, Redis doesn't have the call. If it is 1, and
// Redis replied with an error, the call was not run.
func (s *sending) Writes() int { return int(s.writes.Load()) }

// Stop keeps the current try from being sent, or from being sent again. It reports whether the try was sent before. If it returns
// false, Redis will never see this try, and the try ends with an error.
func (s *sending) Stop() bool {
	s.stopped.Store(true)
	return s.writes.Load() > 0
}
