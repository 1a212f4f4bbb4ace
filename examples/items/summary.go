package main

import (
	"fmt"
	"net/http"
)

// A summary counts the replies.
type summary struct {
	choices
	created     int
	rejected    int // since the limit was reached
	unavailable int // since the lock could not be had
	other       int
	stored      int // items in the store
}

func (s *summary) add(status int) {
	switch status {
	case http.StatusCreated:
		s.created++
	case http.StatusBadRequest:
		s.rejected++
	case http.StatusServiceUnavailable:
		s.unavailable++
	default:
		s.other++
	}
}

// problem returns why the run did not prove what it should, or nil. Without a lock, or with the
// naive one, a race is no problem: the run is meant to show it, though it may not happen.
func (s summary) problem() error {
	want := summary{choices: s.choices, created: limit, rejected: servers - limit, stored: limit}
	switch {
	case s.other > 0:
		return fmt.Errorf("%d answers have a status that was not expected", s.other)
	case s.stored != s.created:
		return fmt.Errorf("%d items were created, but there are %d", s.created, s.stored)
	case s.lock == "none", s.lock == "naive":
		return nil
	case s.lock == "redlock" && s.masters-s.kill < s.masters/2+1: // too few for a quorum
		want = summary{choices: s.choices, unavailable: servers}
	}
	if s != want {
		return fmt.Errorf("want created=%d rejected=%d unavailable=%d", want.created, want.rejected, want.unavailable)
	}
	return nil
}

// String returns the last line of the output.
func (s summary) String() string {
	line := fmt.Sprintf("items: lock=%s created=%d rejected=%d", s.lock, s.created, s.rejected)
	if s.unavailable > 0 {
		line += fmt.Sprintf(" unavailable=%d", s.unavailable)
	}
	return fmt.Sprintf("%s limit=%d", line, limit)
}
