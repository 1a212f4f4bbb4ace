package main

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// A fault is a temporary failure of a server, or of the network to it.
type fault struct {
	name string
	// do makes it happen, and returns when it is over. If the server lost its memory, do returns the
	// time when that was over.
	do func(ctx context.Context, s *station, r *rand.Rand) (forgot int64, err error)
	// masters means that the fault is only for several masters, and happens to all of them at once. With
	// one Redis that goes back to an older memory, the lock promises only that its tokens are larger
	// than those in that memory.
	masters bool
}

// A station is a server and the network to it.
type station struct {
	server  *server
	network *network
}

const (
	shortest = 30 * time.Millisecond
	longest  = 500 * time.Millisecond // more than a TTL
)

func between(r *rand.Rand, a, b time.Duration) time.Duration {
	return a + time.Duration(r.Int64N(int64(b-a)))
}

func someTime(r *rand.Rand) time.Duration { return between(r, shortest, longest) }

// Each of serverFaults happens about as often as the others.
var serverFaults = []fault{
	{name: "latency", do: intoxicate(func(r *rand.Rand) toxic {
		ms := 1 + r.Int64N([]int64{20, 100}[r.IntN(2)])
		t := &toxics.LatencyToxic{Latency: ms, Jitter: ms / 2}
		return toxic{requests: t, replies: t}
	})},
	{name: "blackhole of requests", do: intoxicate(func(*rand.Rand) toxic {
		return toxic{requests: &toxics.TimeoutToxic{}}
	})},
	{name: "blackhole of replies", do: intoxicate(func(*rand.Rand) toxic {
		return toxic{replies: &toxics.TimeoutToxic{}}
	})},
	{name: "requests come late", do: func(ctx context.Context, s *station, r *rand.Rand) (int64, error) {
		s.network.change(toxic{requests: &toxics.TimeoutToxic{}, share: 0.5})
		wait(ctx, between(r, longest, 3*longest)) // when the requests come, their callers have given up
		s.network.change(toxic{})
		return 0, nil
	}},
	{name: "replies are cut", do: func(ctx context.Context, s *station, r *rand.Rand) (int64, error) {
		s.network.change(toxic{replies: cutToxic{}, share: 1})
		wait(ctx, between(r, longest, 4*longest))
		s.network.change(toxic{})
		return 0, nil
	}},
	{name: "back to an older snapshot", do: olderSnapshot, masters: true},
	{name: "back to a shorter log", do: shorterLog, masters: true},
	{name: "timeout, then closed", do: intoxicate(func(r *rand.Rand) toxic {
		t := &toxics.TimeoutToxic{Timeout: 5 + r.Int64N(100)}
		return toxic{requests: t, replies: t}
	})},
	{name: "reset by peer", do: intoxicate(func(r *rand.Rand) toxic {
		t := &toxics.ResetToxic{Timeout: r.Int64N(20)}
		if r.IntN(2) == 0 {
			return toxic{requests: t}
		}
		return toxic{replies: t}
	})},
	{name: "slicing", do: intoxicate(func(r *rand.Rand) toxic {
		t := &toxics.SlicerToxic{AverageSize: 1 + r.IntN(60), Delay: r.IntN(500)}
		return toxic{requests: t, replies: t}
	})},
	{name: "SIGSTOP of a server", do: func(ctx context.Context, s *station, r *rand.Rand) (int64, error) {
		s.server.process.signal(syscall.SIGSTOP)
		wait(ctx, someTime(r))
		s.server.process.signal(syscall.SIGCONT)
		return 0, nil
	}},
	{name: "SIGKILL of a server", do: func(ctx context.Context, s *station, r *rand.Rand) (int64, error) {
		s.server.process.kill()
		forgot := monotonic()
		if r.IntN(2) == 0 {
			wait(ctx, someTime(r)) // otherwise it is back at once
		}
		return forgot, s.server.run(context.WithoutCancel(ctx), fromNothing)
	}},
	{name: "FLUSHALL", do: func(ctx context.Context, s *station, _ *rand.Rand) (int64, error) {
		err := s.server.admin.FlushAll(context.WithoutCancel(ctx)).Err()
		return monotonic(), err
	}},
	{name: "SCRIPT FLUSH", do: func(ctx context.Context, s *station, _ *rand.Rand) (int64, error) {
		return 0, s.server.admin.ScriptFlush(context.WithoutCancel(ctx)).Err()
	}},
	{name: "CLIENT PAUSE", do: func(ctx context.Context, s *station, r *rand.Rand) (int64, error) {
		d := someTime(r)
		mode := []string{"ALL", "WRITE"}[r.IntN(2)]
		// The history may end during the pause. The pause still goes on, because it can't be taken back:
		// the server would delay that call as well.
		whole := context.WithoutCancel(ctx)
		if err := s.server.admin.Do(whole, "CLIENT", "PAUSE", d.Milliseconds(), mode).Err(); err != nil {
			return 0, err
		}
		wait(whole, d)
		return 0, nil
	}},
}

// intoxicate returns a fault that puts a toxic on the network to a server for a while.
func intoxicate(choose func(*rand.Rand) toxic) func(context.Context, *station, *rand.Rand) (int64, error) {
	return func(ctx context.Context, s *station, r *rand.Rand) (int64, error) {
		t := choose(r)
		t.share = []float32{0.5, 1}[r.IntN(2)] // with half of the connections, some clients have the fault and others don't
		s.network.change(t)
		wait(ctx, someTime(r))
		s.network.change(toxic{})
		return 0, nil
	}
}
