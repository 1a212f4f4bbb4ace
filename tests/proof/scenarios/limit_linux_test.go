package scenarios

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock/redlock"
)

// If a node loses its memory, the order of tokens depends on the nodes' clocks. A has the lock on master
// 3, which then forgets, and on 4 and 5. Later B has it on 1 to 3. If the clocks of 4 and 5 are ahead by
// more than the restart delay, so is A's token, and B's token is smaller. The documentation states this
// limit. If this test fails, the limit is gone, and the documentation is wrong.
func TestTokensOverALossNeedClocksThatAgree(t *testing.T) {
	if os.Getenv("SIGNALBOX_TEST_REDIS") == "embedded" {
		t.Skip("needs real redis-servers")
	}
	s, err := equip(t.Context(), t.TempDir())
	if errors.Is(err, ErrMissing) && os.Getenv("SIGNALBOX_TEST_REDIS") != "required" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		ahead   time.Duration
		ordered bool
	}{
		"they agree":          {0, true},
		"they are 20 s apart": {20 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
			defer cancel()
			sc := &scene{stage: s, ctx: ctx}
			defer sc.end()
			before, after, err := sc.tokensOverALoss(c.ahead)
			if err != nil {
				t.Fatal(err)
			}
			if ordered := after > before; ordered != c.ordered {
				t.Errorf("token %d was granted after %d", after, before)
			}
			if err := sc.grants.check(); (err == nil) != c.ordered {
				t.Errorf("the check of the tokens says %v", err)
			}
		})
	}
}

// tokensOverALoss returns the tokens of A and B.
func (sc *scene) tokensOverALoss(ahead time.Duration) (before, after int64, err error) {
	const key = "loss"
	config := redlock.Config{TTL: time.Second, NodeTimeout: 200 * time.Millisecond}
	if err := sc.cast(); err != nil {
		return 0, 0, err
	}
	for _, m := range sc.masters[quorum:] {
		if err := m.jump(sc.ctx, ahead); err != nil {
			return 0, 0, err
		}
	}
	proxies, addrs, err := sc.proxies(sc.addrs())
	if err != nil {
		return 0, 0, err
	}
	a, err := sc.client("A", append(addrs[:quorum-1:quorum-1], sc.addrs()[quorum-1:]...), config)
	if err != nil {
		return 0, 0, err
	}
	for _, p := range proxies {
		p.refuse()
	}
	first, err := a.must(order{Do: "acquire", Key: key})
	if err != nil {
		return 0, 0, err
	}
	forgets := sc.masters[quorum-1]
	forgets.kill()
	if err := forgets.start(sc.ctx); err != nil {
		return 0, 0, err
	}
	// B has never received the time of 4 and 5.
	b, err := newClient(sc, "B", append(sc.addrs()[:quorum:quorum], addrs[quorum:]...), config)
	if err != nil {
		return 0, 0, err
	}
	sc.ends = append(sc.ends, b.kill)
	var second report
	err = until(sc.ctx, "master 3 counts for B", func() (bool, error) {
		second, err = b.do(order{Do: "try", Key: key})
		return second.Problem == "", err
	})
	return first.Token, second.Token, err
}
