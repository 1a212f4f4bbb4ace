package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// bellLinger is how long the bell listens on when nobody waits any more.
	bellLinger = 100 * time.Millisecond
	// bellCheck is how often it makes sure of a silent connection.
	bellCheck = 5 * time.Second
	// bellRetry is the pause before it subscribes again after a failure.
	bellRetry = 200 * time.Millisecond
	// channelPrefix is before the random part of a channel's name.
	channelPrefix = "signalbox:lock:"
)

// A bell receives the messages by which locks are offered to this process: by one subscription for all keys, on a
// connection of its own, while somebody waits. Its goroutine ends soon after the last waiter has left.
type bell struct {
	redis *Redis
	deaf  bool // messages may go to another server than the one where it would listen

	mu      sync.Mutex
	users   int
	idle    *time.Timer
	stop    context.CancelFunc // of the goroutine; nil: there is none
	channel string             // it is subscribed to that; empty: to none

	heard [64]string // the values of the last messages
	next  int        // where the next of them goes
}

// again notes the value of a message, and reports whether one of the last messages had it already.
func (b *bell) again(value string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.heard[:], value) {
		return true
	}
	b.heard[b.next] = strings.Clone(value) // not the message, with a key of any length
	b.next = (b.next + 1) % len(b.heard)
	return false
}

// enter begins to listen.
func (b *bell) enter() {
	if b.deaf {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users++
	if b.idle != nil {
		b.idle.Stop()
	}
	if b.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		b.stop = stop
		go b.listen(ctx)
	}
}

// leave ends the subscription a moment after the last waiter has left: another often comes soon.
func (b *bell) leave() {
	if b.deaf {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users--
	if b.users > 0 {
		return
	}
	if b.idle == nil {
		b.idle = time.AfterFunc(bellLinger, b.close)
	} else {
		b.idle.Reset(bellLinger)
	}
}

func (b *bell) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users == 0 && b.stop != nil {
		b.stop()
		b.stop = nil
		b.channel = ""
	}
}

// listening returns the channel that is subscribed to; empty: none.
func (b *bell) listening() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.channel
}

// setChannel does nothing once ctx has ended: another may be listening by then.
func (b *bell) setChannel(ctx context.Context, channel string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() == nil {
		b.channel = channel
	}
}

// listen runs until ctx ends. Each subscription has a channel of its own, so that no message is heard
// over two connections: each may carry a grant, which only one waiter may get.
func (b *bell) listen(ctx context.Context) {
	for ctx.Err() == nil {
		sub := b.redis.rdb.Subscribe(ctx)
		stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // ends what it waits for
		channel := channelPrefix + rand.Text()
		if err := sub.Subscribe(ctx, channel); err == nil {
			b.receive(ctx, sub, channel)
		}
		b.setChannel(ctx, "")
		stop()
		_ = sub.Close()
		pause := time.NewTimer(bellRetry)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// receive returns when the connection is broken or ctx ends.
func (b *bell) receive(ctx context.Context, sub *redis.PubSub, channel string) {
	asked := false
	for {
		msg, err := sub.ReceiveTimeout(ctx, bellCheck)
		var timeout net.Error
		switch m := msg.(type) {
		case *redis.Subscription:
			b.setChannel(ctx, channel)
			b.redis.lookAll() // with the channel's name; a message may have been missed
		case *redis.Message:
			b.redis.heard(m.Payload)
		}
		switch {
		case err == nil:
			asked = false
		case !asked && ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout():
			if asked = true; sub.Ping(ctx) != nil {
				return
			}
		default:
			return
		}
	}
}

// lookAll has the first in every line look.
func (r *Redis) lookAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		l.waiters[0].look()
	}
}

// heard reads a message of release.lua and sends the turn to the first in line.
func (r *Redis) heard(message string) {
	fields := strings.SplitN(message, " ", 8)
	if len(fields) != 8 {
		return
	}
	n, err1 := strconv.Atoi(fields[1])
	since, err2 := strconv.ParseInt(fields[2], 10, 64)
	pause, err3 := strconv.Atoi(fields[3])
	at, err4 := strconv.ParseInt(fields[4], 10, 64)
	token, err5 := strconv.ParseInt(fields[5], 10, 64)
	ms, err6 := strconv.Atoi(fields[6])
	places, err7 := placesOf(fields[7:])
	if errors.Join(err1, err2, err3, err4, err5, err6, err7) != nil || pause < 0 || pause > 10 || ms <= 0 {
		return // none of ours
	}
	// Copies of an old acquire and of the release that undoes it may offer the same once more. A waiter here may have
	// used it, and be using it: so nobody does again. The offer ends by itself.
	if r.bell.again(fields[0]) {
		return
	}
	r.tell(places[0], turn{
		value: fields[0], row: row{n, since}, pause: time.Duration(pause) * time.Millisecond,
		offered: token, at: at, ttl: time.Duration(ms) * time.Millisecond,
	})
}
