package main

import (
	"fmt"
	"net/http"
)

// A summary counts the answers.
type summary struct {
	choices
	created     int
	rejected    int // since there are as many items as there may be
	unavailable int // since the lock could not be had
	other       int
	stored      int // what the store has
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

// problem is why the run did not show what it is for, or nil. A race is no problem where there is
// no lock, or none that works: it is what such a run shows, if it has the luck.
func (s summary) problem() error {
	want := summary{choices: s.choices, created: limit, rejected: servers - limit, stored: limit}
	switch {
	case s.other > 0:
		return fmt.Errorf("%d answers have a status that was not expected", s.other)
	case s.stored != s.created:
		return fmt.Errorf("%d items were created, but there are %d", s.created, s.stored)
	case s.lock == "none", s.lock == "naive":
		return nil
	case s.lock == "redlock" && s.masters-s.kill < s.masters/2+1: // too few to agree
		want = summary{choices: s.choices, unavailable: servers}
	}
	if s != want {
		return fmt.Errorf("want created=%d rejected=%d unavailable=%d", want.created, want.rejected, want.unavailable)
	}
	return nil
}

// String is the last line of the output.
func (s summary) String() string {
	line := fmt.Sprintf("items: lock=%s created=%d rejected=%d", s.lock, s.created, s.rejected)
	if s.unavailable > 0 {
		line += fmt.Sprintf(" unavailable=%d", s.unavailable)
	}
	return fmt.Sprintf("%s limit=%d", line, limit)
}
