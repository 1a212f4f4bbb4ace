package main

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// The series of what a stopwatch measures. Rates depend on what else the machine does; processor time much less.
const (
	_         = iota // jobs a second
	clientCPU        // processor time of this process for a job, in us
	redisCPU         // of the server, in us
	bothCPU          // of both
)

// A stopwatch measures what jobs take, from when it was begun.
type stopwatch struct {
	srv           *server
	at            time.Time
	client, redis time.Duration
}

// stopwatch begins a measurement.
func (s *server) stopwatch(ctx context.Context) (*stopwatch, error) {
	m := &stopwatch{srv: s}
	var err1, err2 error
	m.redis, err1 = s.cpu(ctx)
	m.client, err2 = ownCPU()
	m.at = time.Now()
	return m, errors.Join(err1, err2)
}

// of ends the measurement of n jobs, of which the last one was done at the time last.
func (m *stopwatch) of(ctx context.Context, n int, last time.Time) ([][]float64, error) {
	client, err1 := ownCPU()
	redis, err2 := m.srv.cpu(ctx)
	us := func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(n) }
	ours, theirs := us(client-m.client), us(redis-m.redis)
	return append(rate(n, last.Sub(m.at)), []float64{ours}, []float64{theirs}, []float64{ours + theirs}), errors.Join(err1, err2)
}

// ownCPU returns how much processor time this process has used.
func ownCPU() (time.Duration, error) {
	var used syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), err
}
