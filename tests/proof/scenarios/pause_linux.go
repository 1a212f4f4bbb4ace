package scenarios

import (
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/lock/redlock"
)

// clientPaused: a process is stopped for longer than its TTL, at three moments: while the replies to
// its acquire are in transit, before it checks its lease, and between that check and the write. The first is played again with an acquire
// that lands so late that the masters grant the lock without a vote for the token.
func clientPaused(sc *scene) error {
	config := redlock.Config{TTL: 1500 * time.Millisecond, NodeTimeout: 700 * time.Millisecond, NoRestartDelay: true}
	if err := sc.cast(); err != nil {
		return err
	}
	if err := sc.resources(); err != nil {
		return err
	}
	proxies, addrs, err := sc.proxies(sc.addrs())
	if err != nil {
		return err
	}
	a, err := sc.client("A", addrs, config)
	if err != nil {
		return err
	}
	b, err := sc.client("B", sc.addrs(), config)
	if err != nil {
		return err
	}
	for _, late := range []bool{false, true} {
		if err := sc.pausedBeforeReplies(a, b, proxies, late); err != nil {
			return err
		}
	}
	if err := sc.pausedBeforeLook(a, b); err != nil {
		return err
	}
	return sc.pausedBeforeWrite(a, b)
}

// supersede makes B take the lock that A has or may have, as soon as it has expired. A is stopped.
func (sc *scene) supersede(b *client, key string) error {
	if err := sc.everywhere(sc.masters, key, false); err != nil {
		return err
	}
	_, err := b.must(order{Do: "acquire", Key: key})
	return err
}

// lateVote is more than a token is ahead of the clocks of the masters when it is proposed.
const lateVote = 20 * time.Millisecond

func (sc *scene) pausedBeforeReplies(a, b *client, proxies []*proxy, late bool) error {
	key := "replies"
	if late {
		key = "late-vote"
	}
	acquire := order{Do: "try", Key: key}
	for _, p := range proxies {
		p.hold(replies)
		if late {
			p.hold(requests)
		}
	}
	if err := a.send(acquire); err != nil {
		return err
	}
	if late {
		for _, p := range proxies {
			if err := until(sc.ctx, "A asks", func() (bool, error) { return p.waiting(requests) > 0, nil }); err != nil {
				return err
			}
		}
		asked := monotonic()
		if err := until(sc.ctx, "the token is late", func() (bool, error) { return monotonic() > asked+lateVote, nil }); err != nil {
			return err
		}
		for _, p := range proxies {
			p.release(requests)
		}
	}
	if err := sc.everywhere(sc.masters, key, true); err != nil {
		return err
	}
	if err := a.stop(sc.ctx); err != nil {
		return err
	}
	for _, p := range proxies {
		p.release(replies)
	}
	if err := sc.supersede(b, key); err != nil {
		return err
	}
	if err := sc.writes(b, key); err != nil {
		return err
	}
	if err := a.cont(); err != nil {
		return err
	}
	r, err := a.receive(acquire)
	if err != nil {
		return err
	}
	if r.Problem == "" {
		return fmt.Errorf("client A was granted a lock by replies that it read after %v", r.Done-r.Began)
	}
	how := "no validity is left"
	switch {
	case r.Quorum:
		how = "the time that nodes have to answer is over"
	case r.Held: // also without late, on a busy machine
		how = "its token came late, so it asks for votes for another, and hears that B has the lock"
	}
	// A then gave up only its own lock, and not B's.
	if _, err := b.must(order{Do: "extend"}); err != nil {
		return fmt.Errorf("%w, after A gave its try up", err)
	}
	if _, err := b.must(order{Do: "release"}); err != nil {
		return err
	}
	if late {
		sc.say("The same with an acquire that lands %v late. After %v A isn't granted the lock: %s.", lateVote, (r.Done - r.Began).Round(time.Millisecond), how)
		return nil
	}
	sc.say("A asks for the lock. All five masters grant it, and A is stopped before it can read the replies. B waits until it has expired, gets it and writes. A goes on after %v with the replies there to be read, and isn't granted the lock: %s. What it then gives up is not B's.", (r.Done - r.Began).Round(time.Millisecond), how)
	return nil
}

func (sc *scene) pausedBeforeLook(a, b *client) error {
	const key = "look"
	if err := sc.pausedHolder(a, key); err != nil {
		return err
	}
	step := sc.to("step", key)
	if err := a.send(step); err != nil { // it reads the order when it continues
		return err
	}
	if err := sc.supersede(b, key); err != nil {
		return err
	}
	if err := sc.writes(b, key); err != nil {
		return err
	}
	if err := a.cont(); err != nil {
		return err
	}
	r, err := a.receive(step)
	if err != nil {
		return err
	}
	if !r.Lost || r.Status != nil {
		return fmt.Errorf("client A looked at its lease after the pause, and wrote all the same: %v, %q", r.Status, r.Problem)
	}
	w, err := sc.unfenced.read(sc.ctx, key)
	if err != nil {
		return err
	}
	if len(w) != 1 || w.last() != "B" {
		return fmt.Errorf("the writes to the resource without a check are %s, not only B's", w)
	}
	if _, err := b.must(order{Do: "release"}); err != nil {
		return err
	}
	sc.say("A holds the lock, is stopped, and is superseded by B. It goes on with a look at its lease, which tells that it has ended: A doesn't write.")
	return nil
}

func (sc *scene) pausedBeforeWrite(a, b *client) error {
	const key = "write"
	if err := sc.pausedHolder(a, key); err != nil {
		return err
	}
	write := sc.to("write", key) // without another check
	if err := a.send(write); err != nil {
		return err
	}
	if err := sc.supersede(b, key); err != nil {
		return err
	}
	if err := sc.writes(b, key); err != nil {
		return err
	}
	if err := a.cont(); err != nil {
		return err
	}
	r, err := a.receive(write)
	if err != nil {
		return err
	}
	if _, err := sc.valid(b); err != nil {
		return err
	}
	sc.say("Once more, but A is stopped between its look, which says that all is well, and its write. It writes while B holds the lock.")
	return sc.late(a, key, r)
}

// pausedHolder makes A take the lock and check its lease. Then it stops A.
func (sc *scene) pausedHolder(a *client, key string) error {
	if _, err := a.must(order{Do: "acquire", Key: key}); err != nil {
		return err
	}
	if err := sc.everywhere(sc.masters, key, true); err != nil {
		return err
	}
	if _, err := sc.valid(a); err != nil {
		return err
	}
	return a.stop(sc.ctx)
}
