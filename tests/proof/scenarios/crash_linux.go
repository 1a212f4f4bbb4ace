package scenarios

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/lock/redlock"
)

// nodeForgets: A has the lock on nodes 1 to 3, since it can't reach 4 and 5. Node 3 crashes,
// and is back at once with an empty memory. If node 3 counts, B gets a majority.
func nodeForgets(sc *scene) error {
	if err := sc.resources(); err != nil {
		return err
	}
	config := redlock.Config{TTL: 2 * time.Second, NodeTimeout: 500 * time.Millisecond, NoRestartDelay: true}
	a, b, err := sc.crashed("without", config)
	if err != nil {
		return err
	}
	if err := sc.bothHold(a, b, "without"); err != nil {
		return err
	}
	sc.say("A has the lock on masters 1 to 3, as 4 and 5 are out of its reach. Master 3 crashes and is back at once, without what it knew. Without the restart delay B gets the lock on 3 to 5: both hold it at once.")
	if err := sc.writes(b, "without"); err != nil {
		return err
	}
	if err := sc.writesLate(a, "without"); err != nil {
		return err
	}

	config.NoRestartDelay = false
	if a, b, err = sc.crashed("with", config); err != nil {
		return err
	}
	r, err := sc.refusedWhile(a, b, "with")
	if err != nil {
		return err
	}
	has, err := sc.masters[2].has(sc.ctx, "with")
	if err != nil {
		return err
	}
	if has {
		return errors.New("the master that crashed still has the lock")
	}
	end, err := sc.valid(a)
	if err != nil {
		return err
	}
	if r, err = b.must(order{Do: "acquire", Key: "with"}); err != nil {
		return err
	}
	if r.Done < end.Until {
		sc.figures.twoHolders++
		return fmt.Errorf("client B got the lock %v before A's ended", end.Until-r.Done)
	}
	sc.say("The same with the restart delay: B is refused while A holds, though master 3 is back and has no such key, and gets the lock %v after A's lease ended.", (r.Done - end.Until).Round(time.Millisecond))
	if err := sc.writes(b, "with"); err != nil {
		return err
	}
	return sc.writesLate(a, "with")
}

// crashed sets up the case on five new masters, until node 3 is back.
func (sc *scene) crashed(key string, config redlock.Config) (a, b *client, err error) {
	if err := sc.cast(); err != nil {
		return nil, nil, err
	}
	proxies, addrs, err := sc.proxies(sc.addrs()[quorum:])
	if err != nil {
		return nil, nil, err
	}
	if a, err = sc.client("A", append(sc.addrs()[:quorum], addrs...), config); err != nil {
		return nil, nil, err
	}
	if b, err = sc.client("B", sc.addrs(), config); err != nil {
		return nil, nil, err
	}
	for _, p := range proxies {
		p.refuse()
	}
	if _, err := a.must(order{Do: "acquire", Key: key}); err != nil {
		return nil, nil, err
	}
	if err := sc.everywhere(sc.masters[:quorum], key, true); err != nil {
		return nil, nil, err
	}
	if err := sc.everywhere(sc.masters[quorum:], key, false); err != nil {
		return nil, nil, err
	}
	forgets := sc.masters[quorum-1]
	forgets.kill()
	if err := forgets.start(sc.ctx); err != nil {
		return nil, nil, err
	}
	// B sees that the master is back. So if B is refused later, a lost connection isn't the
	// reason.
	err = until(sc.ctx, "B sees that the master is back", func() (bool, error) {
		r, err := b.do(order{Do: "ready"})
		return r.Problem == "" && config.NoRestartDelay || strings.Contains(r.Problem, "it counts in"), err
	})
	return a, b, err
}
