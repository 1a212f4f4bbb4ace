package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox/lock/redlock"
)

// packetsLate: a proxy holds packets for longer than the validity: the replies to an acquire, the
// acquire itself, and a holder's write.
func packetsLate(sc *scene) error {
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
	// Long enough to see that left keys are deleted, and don't just expire.
	config := redlock.Config{TTL: 4 * time.Second, NodeTimeout: 300 * time.Millisecond, NoRestartDelay: true}
	short := config
	short.TTL, short.MaxTTL = time.Second, config.TTL
	a, err := sc.client("A", addrs, config)
	if err != nil {
		return err
	}
	b, err := sc.client("B", sc.addrs(), short)
	if err != nil {
		return err
	}
	quick, err := sc.client("A", addrs, short)
	if err != nil {
		return err
	}
	if err := sc.lateReplies(quick, b, proxies); err != nil {
		return err
	}
	if err := sc.lateAcquire(a, b, proxies); err != nil {
		return err
	}
	return sc.lateWrite(quick, b)
}

// refusedByTime checks that a try has failed because no node answered.
func refusedByTime(r report) error {
	if r.Problem == "" || r.Held || !r.Quorum {
		return fmt.Errorf("client A asked nodes that didn't answer, and was granted the lock, or told that another has it: %q", r.Problem)
	}
	return nil
}

func (sc *scene) lateReplies(a, b *client, proxies []*proxy) error {
	const key = "late-replies"
	acquire := order{Do: "try", Key: key}
	for _, p := range proxies {
		p.hold(replies)
	}
	if err := a.send(acquire); err != nil {
		return err
	}
	if err := sc.everywhere(sc.masters, key, true); err != nil {
		return err
	}
	began := monotonic()
	r, err := a.receive(acquire)
	if err != nil {
		return err
	}
	if err := refusedByTime(r); err != nil {
		return err
	}
	if err := sc.everywhere(sc.masters, key, false); err != nil {
		return err
	}
	held := monotonic() - began
	for _, p := range proxies {
		p.release(replies)
	}
	if err := sc.free(b, key); err != nil {
		return err
	}
	sc.say("Five masters grant A the lock, but a proxy holds their replies. After %v A gives up, without a lock; the replies arrive after %v, when the lock has ended, and change nothing: B gets it at once.", (r.Done - r.Began).Round(time.Millisecond), held.Round(time.Millisecond))
	return nil
}

func (sc *scene) lateAcquire(a, b *client, proxies []*proxy) error {
	const key = "late-acquire"
	acquire := order{Do: "try", Key: key}
	expired, err := sc.counts("stats", "expired_keys:")
	if err != nil {
		return err
	}
	sets, err := sc.counts("commandstats", "cmdstat_set:calls=")
	if err != nil {
		return err
	}
	scripts, err := sc.counts("commandstats", "cmdstat_evalsha:calls=")
	if err != nil {
		return err
	}
	for _, p := range proxies {
		p.hold(requests)
	}
	began := monotonic()
	r, err := a.do(acquire)
	if err != nil {
		return err
	}
	if err := refusedByTime(r); err != nil {
		return err
	}
	err = until(sc.ctx, "the validity that A asked for would be over", func() (bool, error) {
		return monotonic() > began+4*time.Second, nil
	})
	if err != nil {
		return err
	}
	for _, p := range proxies {
		if p.waiting(requests) == 0 {
			return errors.New("the proxy holds no acquire of A's")
		}
		p.release(requests)
	}
	for i, m := range sc.masters {
		err := until(sc.ctx, "A's acquire lands", func() (bool, error) {
			n, err := m.count(sc.ctx, "commandstats", "cmdstat_evalsha:calls=")
			return n > scripts[i], err
		})
		if err != nil {
			return err
		}
	}
	if err := sc.everywhere(sc.masters, key, false); err != nil {
		return err
	}
	now, err := sc.counts("stats", "expired_keys:")
	if err != nil {
		return err
	}
	if !slices.Equal(now, expired) {
		return errors.New("locks that landed late were left to expire")
	}
	set, err := sc.counts("commandstats", "cmdstat_set:calls=")
	if err != nil {
		return err
	}
	if !slices.Equal(set, sets) {
		return errors.New("an acquire that landed after its deadline set the lock")
	}
	if err := sc.free(b, key); err != nil {
		return err
	}
	sc.say("The proxy holds A's acquire itself for more than its TTL of 4 s. It lands on five masters long after A gave up, and closed the connection. It has a deadline in each master's time, so it sets nothing, and B gets the lock.")
	return nil
}

// counts returns a number from the INFO of each master.
func (sc *scene) counts(section, name string) ([]int, error) {
	all := make([]int, len(sc.masters))
	for i, m := range sc.masters {
		n, err := m.count(sc.ctx, section, name)
		if err != nil {
			return nil, err
		}
		all[i] = n
	}
	return all, nil
}

// free makes a client acquire a free lock, and release it.
func (sc *scene) free(c *client, key string) error {
	if _, err := c.must(order{Do: "try", Key: key}); err != nil {
		return err
	}
	_, err := c.must(order{Do: "release"})
	return err
}

func (sc *scene) lateWrite(a, b *client) error {
	const key = "late-write"
	proxies, _, err := sc.proxies([]string{sc.unfenced.addr, sc.fenced.addr})
	if err != nil {
		return err
	}
	if _, err := a.must(order{Do: "acquire", Key: key}); err != nil {
		return err
	}
	if err := sc.everywhere(sc.masters, key, true); err != nil {
		return err
	}
	step := order{Do: "step"}
	for _, p := range proxies {
		p.hold(requests)
		step.URLs = append(step.URLs, "http://"+p.addr()+"/"+key)
	}
	if err := a.send(step); err != nil {
		return err
	}
	for _, p := range proxies {
		err := until(sc.ctx, "A writes", func() (bool, error) { return p.waiting(requests) > 0, nil })
		if err != nil {
			return err
		}
	}
	if err := sc.supersede(b, key); err != nil {
		return err
	}
	if err := sc.writes(b, key); err != nil {
		return err
	}
	for _, p := range proxies {
		p.release(requests)
	}
	r, err := a.receive(step)
	if err != nil {
		return err
	}
	if r.Lost {
		return fmt.Errorf("%w: A's lease had ended before its write", errMissed)
	}
	if _, err := sc.valid(b); err != nil {
		return err
	}
	sc.say("Last, a proxy holds what A writes, after a look at its lease that was in order, until A's lease has ended and B has the lock and has written.")
	return sc.late(a, key, r)
}
