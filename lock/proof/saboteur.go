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
	forgot     int64 // by when the memory of a server was lost; 0: it wasn't
}

const (
	clientPause = "SIGSTOP of clients"
	clientKill  = "SIGKILL of a client"
)

// A saboteur has faults happen and notes when.
type saboteur struct {
	stations []*station
	crew     *crew

	// turns is held by each fault of servers; one that is for all of them has it alone.
	turns sync.RWMutex

	mu      sync.Mutex
	busy    map[*station]bool
	windows []window
}

// seen is how many windows there were so far.
func (b *saboteur) seen() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.windows)
}

// note keeps a window that ends now.
func (b *saboteur) note(w window) {
	w.end = monotonic()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.windows = append(b.windows, w)
}

// work has faults happen to servers, as many at a time as hands says, and to clients, until ctx ends or
// something goes wrong that shouldn't.
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

// hitServers has one fault after the other, mostly on one server and sometimes on several
// at once, which is one window.
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

// hitAll waits until nothing happens to any server, and has the fault happen to all.
func (b *saboteur) hitAll(ctx context.Context, f fault, r *rand.Rand) error {
	b.turns.Lock()
	defer b.turns.Unlock()
	return b.hit(ctx, f, b.take(r, len(b.stations)), r)
}

// hitSome has it happen to up to n servers to which nothing happens yet.
func (b *saboteur) hitSome(ctx context.Context, f fault, n int, r *rand.Rand) error {
	b.turns.RLock()
	defer b.turns.RUnlock()
	return b.hit(ctx, f, b.take(r, n), r)
}

// hit has a fault happen to the servers, and frees them.
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
			own = rand.New(rand.NewPCG(seed, 0)) // they go back together, and as far
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

// take takes up to n servers that nothing happens to.
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

// hitClients pauses some and kills some.
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
