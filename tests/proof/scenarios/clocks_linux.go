package scenarios

import (
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/lock/redlock"
)

// jump is how far the clocks of servers jump.
const jump = 30 * time.Second

// clocksJump: a server whose clock jumps forward expires a lock early. On one node that has
// no effect. On a majority the lock is granted again while it is held.
func clocksJump(sc *scene) error {
	const key, register = "clocks", "clocks"
	config := redlock.Config{TTL: 2 * time.Second, NodeTimeout: 500 * time.Millisecond}
	if err := sc.cast(); err != nil {
		return err
	}
	if err := sc.resources(); err != nil {
		return err
	}
	a, err := sc.client("A", sc.addrs(), config)
	if err != nil {
		return err
	}
	b, err := sc.client("B", sc.addrs(), config)
	if err != nil {
		return err
	}
	if _, err := a.must(order{Do: "acquire", Key: key}); err != nil {
		return err
	}
	if err := sc.everywhere(sc.masters, key, true); err != nil {
		return err
	}

	if err := sc.jump(key, 1); err != nil {
		return err
	}
	r, err := sc.refusedWhile(a, b, key)
	if err != nil {
		return err
	}
	if !r.Held {
		return fmt.Errorf("client B was refused, but not since A has the lock: %s", r.Problem)
	}
	if _, err := a.must(order{Do: "extend"}); err != nil {
		return fmt.Errorf("with one clock wrong: %w", err)
	}
	sc.say("A holds the lock on five masters for %v. The clock of one jumps %v ahead, and the lock is gone there. B asks, and is refused: four others have it for A, who also extends it.", config.TTL, jump)

	if err := sc.jump(key, quorum); err != nil {
		return err
	}
	if err := sc.bothHold(a, b, key); err != nil {
		return err
	}
	sc.say("Then the clocks of three have jumped. B asks again and gets the lock: both hold it at once, as the timing assumption is broken on a majority.")
	if err := sc.writes(b, register); err != nil {
		return err
	}
	if r, err = sc.valid(a); err != nil {
		return err
	}
	left := r.Until - r.At
	if err := sc.writesLate(a, register); err != nil {
		return err
	}
	sc.say("(A's lease had %v left when it wrote: nothing on its side could have told.)", left.Round(time.Millisecond))

	if _, err := b.must(order{Do: "release"}); err != nil {
		return err
	}
	for _, m := range sc.masters {
		if err := m.jump(sc.ctx, 0); err != nil {
			return err
		}
	}
	if _, err := a.must(order{Do: "acquire", Key: key}); err != nil {
		return err
	}
	sc.say("The clocks are set back. A acquires once more: its token is the largest yet, since the registers remember.")
	return sc.writes(a, register)
}

// jump moves the clocks of the first n masters ahead. So the lock expires on them.
func (sc *scene) jump(key string, n int) error {
	for _, m := range sc.masters[:n] {
		if err := m.jump(sc.ctx, jump); err != nil {
			return err
		}
	}
	return sc.everywhere(sc.masters[:n], key, false)
}
