package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A window is one fault from its begin to its end.
type window struct {
	name       string
	begin, end int64
	forgot     int64 // the latest time when a server's memory was lost; 0: none was
}

const (
	clientPause = "SIGSTOP of clients"
	clientKill  = "SIGKILL of a client"
)

// A saboteur causes faults and records when they happen.
type saboteur struct {
	stations []*station
	crew     *crew

	// turns is locked for reading by each server fault. A fault of all servers locks it alone.
	turns sync.RWMutex

	mu      sync.Mutex
	busy    map[*station]bool
	windows []window
}

// seen returns the number of windows so far.
func (b *saboteur) seen() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.windows)
}

// note records a window that ends now.
func (b *saboteur) note(w window) {
	w.end = monotonic()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.windows = append(b.windows, w)
}

// work causes faults of servers, hands of them at a time, and of clients. It returns when ctx ends, or
// when something fails that shouldn't.
func (b *saboteur) work(ctx context.Context, hands int, seed uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, hands+1)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			defer cancel()
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			if i < hands {
				errs[i] = b.hitServers(ctx, r)
			} else {
				errs[i] = b.hitClients(ctx, r)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// hitServers causes one fault after the other, mostly of one server and sometimes of several at once.
// That is one window.
func (b *saboteur) hitServers(ctx context.Context, r *rand.Rand) error {
	for {
		for _, i := range r.Perm(len(serverFaults)) {
			wait(ctx, between(r, 20*time.Millisecond, 200*time.Millisecond))
			if ctx.Err() != nil {
				return nil
			}
			f, n := serverFaults[i], 1
			switch {
			case f.masters && len(b.stations) == 1:
				continue
			case f.masters:
				if err := b.hitAll(ctx, f, r); err != nil {
					return fmt.Errorf("%s: %w", f.name, err)
				}
				continue
			case r.IntN(4) == 0:
				n = 1 + r.IntN(len(b.stations))
			}
			if err := b.hitSome(ctx, f, n, r); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
}

// hitAll waits until no server has a fault, and then causes the fault on all of them.
func (b *saboteur) hitAll(ctx context.Context, f fault, r *rand.Rand) error {
	b.turns.Lock()
	defer b.turns.Unlock()
	return b.hit(ctx, f, b.take(r, len(b.stations)), r)
}

// hitSome causes the fault on up to n servers that have none.
func (b *saboteur) hitSome(ctx context.Context, f fault, n int, r *rand.Rand) error {
	b.turns.RLock()
	defer b.turns.RUnlock()
	return b.hit(ctx, f, b.take(r, n), r)
}

// hit causes a fault on the servers, and then frees them.
func (b *saboteur) hit(ctx context.Context, f fault, stations []*station, r *rand.Rand) error {
	if len(stations) == 0 {
		return nil
	}
	w := window{name: f.name, begin: monotonic()}
	errs := make([]error, len(stations))
	forgot := make([]int64, len(stations))
	seed := r.Uint64()
	var all sync.WaitGroup
	for i, s := range stations {
		own := rand.New(rand.NewPCG(seed, uint64(i)))
		if f.masters {
			own = rand.New(rand.NewPCG(seed, 0)) // all servers go back equally far
		}
		all.Go(func() {
			defer b.free(s)
			forgot[i], errs[i] = f.do(ctx, s, own)
		})
	}
	all.Wait()
	for _, at := range forgot {
		w.forgot = max(w.forgot, at)
	}
	b.note(w)
	return errors.Join(errs...)
}

// take takes up to n servers without a fault.
func (b *saboteur) take(r *rand.Rand, n int) []*station {
	b.mu.Lock()
	defer b.mu.Unlock()
	var taken []*station
	for _, i := range r.Perm(len(b.stations)) {
		if s := b.stations[i]; !b.busy[s] && len(taken) < n {
			b.busy[s] = true
			taken = append(taken, s)
		}
	}
	return taken
}

func (b *saboteur) free(s *station) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.busy, s)
}

// hitClients pauses some clients and kills some.
func (b *saboteur) hitClients(ctx context.Context, r *rand.Rand) error {
	for {
		wait(ctx, between(r, 20*time.Millisecond, 250*time.Millisecond))
		if ctx.Err() != nil {
			return nil
		}
		if err := b.crew.broken(); err != nil {
			return err
		}
		w := window{begin: monotonic()}
		if r.IntN(2) == 0 {
			w.name = clientPause
			b.crew.pause(ctx, r.Perm(processes)[:1+r.IntN(4)], between(r, shortest, 2*longest))
		} else {
			w.name = clientKill
			if err := b.crew.replace(r.IntN(processes)); err != nil {
				return err
			}
		}
		b.note(w)
	}
}
