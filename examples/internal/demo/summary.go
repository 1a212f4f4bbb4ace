package demo

import (
	"fmt"
	"net/http"
)

// A Summary counts the replies.
type Summary struct {
	choices
	Created     int
	rejected    int // since the limit was reached
	unavailable int // since the lock could not be had
	other       int
	stored      int // items in the store
}

func (s *Summary) add(status int) {
	switch status {
	case http.StatusCreated:
		s.Created++
	case http.StatusBadRequest:
		s.rejected++
	case http.StatusServiceUnavailable:
		s.unavailable++
	default:
		s.other++
	}
}

// Problem returns why the run did not prove what it should, or nil. With a lock that doesn't work a
// race is no problem: the run is meant to show it, though it may not happen.
func (s Summary) Problem() error {
	want := Summary{choices: s.choices, Created: Limit, rejected: Servers - Limit, stored: Limit}
	switch {
	case s.other > 0:
		return fmt.Errorf("%d answers have a status that was not expected", s.other)
	case s.stored != s.Created:
		return fmt.Errorf("%d items were created, but there are %d", s.Created, s.stored)
	case !s.lock.Works:
		return nil
	case s.lock.Nodes != nil && s.nodes-s.kill < s.nodes/2+1: // too few for a quorum
		want = Summary{choices: s.choices, unavailable: Servers}
	}
	if s != want {
		return fmt.Errorf("want created=%d rejected=%d unavailable=%d", want.Created, want.rejected, want.unavailable)
	}
	return nil
}

// String returns the last line of the output.
func (s Summary) String() string {
	line := fmt.Sprintf("items: lock=%s created=%d rejected=%d", s.lock.Name, s.Created, s.rejected)
	if s.unavailable > 0 {
		line += fmt.Sprintf(" unavailable=%d", s.unavailable)
	}
	return fmt.Sprintf("%s limit=%d", line, Limit)
}
