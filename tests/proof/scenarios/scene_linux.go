package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/signalbox-go/signalbox/lock/redlock"
)

// nodes is the number of masters in a play. quorum is a majority of them.
const (
	nodes  = 5
	quorum = nodes/2 + 1
)

// A scene is one play of a case.
type scene struct {
	*stage
	ctx     context.Context
	masters []*master
	// The two resources: one checks tokens, the other doesn't.
	fenced, unfenced *resource

	grants  grants
	figures figures
	story   []string
	ends    []func()
}

// say adds a sentence to the story.
func (sc *scene) say(format string, args ...any) {
	sc.story = append(sc.story, fmt.Sprintf(format, args...))
}

// end ends all processes and proxies of the play.
func (sc *scene) end() {
	sc.figures.grants = len(sc.grants)
	for _, end := range slices.Backward(sc.ends) {
		end()
	}
	sc.ends = nil
}

// cast starts five masters.
func (sc *scene) cast() error {
	sc.masters = nil
	for range nodes {
		m, err := newMaster(sc.ctx, sc.stage)
		if err != nil {
			return err
		}
		sc.ends = append(sc.ends, m.end)
		sc.masters = append(sc.masters, m)
	}
	return nil
}

// resources starts the two resources.
func (sc *scene) resources() error {
	for settings, r := range map[string]**resource{"": &sc.unfenced, "checks": &sc.fenced} {
		started, err := newResource(sc.stage, settings)
		if err != nil {
			return err
		}
		sc.ends = append(sc.ends, started.kill)
		*r = started
	}
	return nil
}

func (sc *scene) addrs() []string {
	addrs := make([]string, len(sc.masters))
	for i, m := range sc.masters {
		addrs[i] = m.addr
	}
	return addrs
}

// proxies puts a proxy before each of these addresses.
func (sc *scene) proxies(targets []string) ([]*proxy, []string, error) {
	var all []*proxy
	var addrs []string
	for _, target := range targets {
		p, err := newProxy(target)
		if err != nil {
			return nil, nil, err
		}
		sc.ends = append(sc.ends, p.end)
		all, addrs = append(all, p), append(addrs, p.addr())
	}
	return all, addrs, nil
}

// client starts a client. It returns when all nodes count for the client.
func (sc *scene) client(name string, addrs []string, c redlock.Config) (*client, error) {
	cl, err := newClient(sc, name, addrs, c)
	if err != nil {
		return nil, err
	}
	sc.ends = append(sc.ends, cl.kill)
	return cl, until(sc.ctx, "all nodes count for "+name, func() (bool, error) {
		r, err := cl.do(order{Do: "ready"})
		return r.Problem == "", err
	})
}

// everywhere waits until each of these masters has the key, or none of them.
func (sc *scene) everywhere(masters []*master, key string, there bool) error {
	for _, m := range masters {
		err := until(sc.ctx, fmt.Sprintf("has %s: %v", key, there), func() (bool, error) {
			has, err := m.has(sc.ctx, key)
			return has == there, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// valid asks a client for its lease. If the lease has ended, the play was too slow to prove
// anything.
func (sc *scene) valid(c *client) (report, error) {
	r, err := c.must(order{Do: "ask"})
	if err == nil && !r.Valid {
		err = fmt.Errorf("%w: the lease of %s has ended", errMissed, c.name)
	}
	return r, err
}

// refusedWhile makes a client try to get the lock. That must be refused while the other's lease
// lasts.
func (sc *scene) refusedWhile(holder, other *client, key string) (report, error) {
	r, err := other.do(order{Do: "try", Key: key})
	if err != nil {
		return r, err
	}
	if _, err := sc.valid(holder); err != nil {
		return r, err
	}
	if r.Problem == "" {
		sc.figures.twoHolders++
		return r, fmt.Errorf("%s got the lock while %s has it", other.name, holder.name)
	}
	return r, nil
}

// bothHold makes a client take a lock that another has. It checks that both hold it at the same
// moment.
func (sc *scene) bothHold(holder, other *client, key string) error {
	sc.figures.wantTwo++
	r, err := other.do(order{Do: "try", Key: key})
	if err != nil {
		return err
	}
	// The other client got the lock before the holder is asked, and is asked after that.
	if _, err := sc.valid(holder); err != nil {
		return err
	}
	if r.Problem != "" {
		return fmt.Errorf("%s did not get the lock, so nothing was shown: %s", other.name, r.Problem)
	}
	if _, err := sc.valid(other); err != nil {
		return err
	}
	sc.figures.twoHolders++
	return nil
}

// to returns the order to write to both resources: first the one without a check, then the one
// with.
func (sc *scene) to(what, name string) order {
	return order{Do: what, URLs: []string{"http://" + sc.unfenced.addr + "/" + name, "http://" + sc.fenced.addr + "/" + name}}
}

// writes makes a client write to both resources, which must accept it.
func (sc *scene) writes(c *client, name string) error {
	r, err := c.must(sc.to("write", name))
	if err == nil && !slices.Equal(r.Status, []int{http.StatusOK, http.StatusOK}) {
		err = fmt.Errorf("the writes of %s were answered by %v", c.name, r.Status)
	}
	return err
}

// writesLate makes a client that was superseded write to both resources.
func (sc *scene) writesLate(c *client, name string) error {
	r, err := c.must(sc.to("write", name))
	if err != nil {
		return err
	}
	return sc.late(c, name, r)
}

// late checks the result of the write of a client that was superseded.
func (sc *scene) late(c *client, name string, r report) error {
	sc.figures.wantLate++
	if r.Problem != "" {
		return errors.New(r.Problem)
	}
	bad, err := sc.unfenced.read(sc.ctx, name)
	if err != nil {
		return err
	}
	good, err := sc.fenced.read(sc.ctx, name)
	if err != nil {
		return err
	}
	if r.Status[0] == http.StatusOK && !bad.ordered() && bad.last() == c.name {
		sc.figures.overwritten++
	}
	if r.Status[1] == http.StatusConflict && good.ordered() && good.last() != c.name {
		sc.figures.refused++
	}
	sc.say("Where tokens aren't checked the writes are now those of %s, and the last is wrong; where they are, %s's was refused, and they are those of %s.", bad, c.name, good)
	return nil
}
