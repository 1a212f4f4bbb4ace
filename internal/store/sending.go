package store

import (
	"errors"
	"strconv"
	"sync/atomic"
)

// ErrStopped is the error of a call that Lane.Stop kept from being sent.
var ErrStopped = errors.New("store: the call was given up before it was sent")

// sending knows whether a call of a lane was given to a connection: the client makes a call again by itself, and
// returns the last error only. As an argument of the call it is written, and asked, once for each time.
type sending struct {
	number  int64
	by      Reckoning // of a call with ticks
	text    [44]byte
	writes  atomic.Int32
	stopped atomic.Bool
}

// MarshalBinary returns the protocol and the number of the call in its lane, in decimal digits, with the reckoning behind them.
func (s *sending) MarshalBinary() ([]byte, error) {
	s.writes.Add(1) // first, so that Stop doesn't miss it
	if s.stopped.Load() {
		s.writes.Add(-1)
		return nil, ErrStopped
	}
	return s.append(s.text[:0]), nil
}

func (s *sending) append(text []byte) []byte {
	text = append(strconv.AppendInt(text, Protocol, 10), ' ')
	text = strconv.AppendInt(text, s.number, 10)
	if s.by.Known {
		text = strconv.AppendInt(append(text, ' '), s.by.Skew.Microseconds(), 10)
	}
	return text
}

// String returns what MarshalBinary does, for hooks of the client that print calls.
func (s *sending) String() string { return string(s.append(nil)) }

// Rearm counts from zero again, for the next try of the call. No other try is under way.
func (s *sending) Rearm() {
	s.writes.Store(0)
	s.stopped.Store(false)
}

// Writes returns how often the call was given to a connection since Rearm. With 0, Redis doesn't have it.
// With 1, an error that Redis replied with says that it was not run.
func (s *sending) Writes() int { return int(s.writes.Load()) }

// Stop keeps the try under way from being sent, or sent again, and reports whether it had been sent before. If
// it returns false, Redis will never see this try, which ends with an error.
func (s *sending) Stop() bool {
	s.stopped.Store(true)
	return s.writes.Load() > 0
}
