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
	// bellLinger is how long the bell goes on listening after the last waiter has left.
	bellLinger = 100 * time.Millisecond
	// bellCheck is how often the bell checks a connection on which nothing comes.
	bellCheck = 5 * time.Second
	// bellRetry is the pause after a failure, before the bell subscribes again.
	bellRetry = 200 * time.Millisecond
	// channelPrefix stands before the random part of a channel's name.
	channelPrefix = "signalbox:lock:"
)

// A bell receives the messages that offer locks to this process. It has one subscription for all keys, on a
// connection of its own, and only while somebody waits. Its goroutine ends soon after the last waiter has left.
type bell struct {
	redis *Redis
	deaf  bool // messages may go to a server other than the one where it would listen, so it doesn't

	mu      sync.Mutex
	users   int
	idle    *time.Timer
	stop    context.CancelFunc // ends the goroutine; nil: there is none
	channel string             // the channel that it is subscribed to; empty: none

	heard [64]string // the values of the latest messages, a ring
	next  int        // where the next value goes
}

// again notes the value of a message. It reports whether one of the latest messages had the same value.
func (b *bell) again(value string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.heard[:], value) {
		return true
	}
	b.heard[b.next] = strings.Clone(value) // a copy: the message has the key in it, of any length
	b.next = (b.next + 1) % len(b.heard)
	return false
}

// enter counts a waiter, and begins to listen with the first.
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

// leave counts a waiter off. The subscription ends a moment after the last one has left, since the next often comes soon.
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

// listening returns the channel that the bell is subscribed to; empty: none.
func (b *bell) listening() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.channel
}

// setChannel sets the channel. It does nothing once ctx has ended: another goroutine may be listening by then.
func (b *bell) setChannel(ctx context.Context, channel string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() == nil {
		b.channel = channel
	}
}

// listen runs until ctx ends. Each subscription has a new channel, so that no message is heard over two
// connections. A message may carry a grant, and only one waiter may get that.
func (b *bell) listen(ctx context.Context) {
	for ctx.Err() == nil {
		sub := b.redis.rdb.Subscribe(ctx)
		stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // ends the calls below that wait
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

// receive handles messages until the connection breaks or ctx ends.
func (b *bell) receive(ctx context.Context, sub *redis.PubSub, channel string) {
	asked := false
	for {
		msg, err := sub.ReceiveTimeout(ctx, bellCheck)
		var timeout net.Error
		switch m := msg.(type) {
		case *redis.Subscription:
			b.setChannel(ctx, channel)
			b.redis.lookAll() // the looks name the channel, and find what a missed message would have said
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

// lookAll makes the first waiter of every line look.
func (r *Redis) lookAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		l.waiters[0].look()
	}
}

// heard reads a message of release.lua and sends the turn to the first waiter of the key's line.
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
		return // not a message of this library
	}
	// The same offer may come twice: by a late copy of an acquire, and by the release that undoes it. A
	// waiter here may already use the first. So the second is dropped. It ends by itself.
	if r.bell.again(fields[0]) {
		return
	}
	r.tell(places[0], turn{
		value: fields[0], row: row{n, since}, pause: time.Duration(pause) * time.Millisecond,
		offered: token, at: at, ttl: time.Duration(ms) * time.Millisecond,
	})
}
