package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/redlock"
)

// callTimeout bounds the time for one order.
const callTimeout = 15 * time.Second

// clientSettings are the settings of a client process.
type clientSettings struct {
	Name   string
	Nodes  []string
	Config redlock.Config
}

// An order says what a client process must do. It comes on standard input.
type order struct {
	Do   string // ready, try, acquire, ask, write, step, extend or release
	Key  string
	URLs []string // of registers to write to at the same time
}

// A report is the result of an order.
type report struct {
	Problem            string // the error's text
	Held, Quorum, Lost bool   // the kind of error
	Token              int64
	Valid              bool  // the lease's state at the moment At
	Status             []int // of writes
	// Moments on the monotonic clock: when the order began and was done, when the lease
	// was asked, and when its validity ends.
	Began, Done, At, Until time.Duration
}

// part is the state of the process.
type part struct {
	name   string
	locker *redlock.Locker
	lease  lock.Lock
}

// playClient executes one order after the other.
func playClient(settings string) error {
	logging.Disable() // go-redis logs each call that fails; the reports have more about it
	var s clientSettings
	if err := json.Unmarshal([]byte(settings), &s); err != nil {
		return err
	}
	nodes := make([]*redis.Options, len(s.Nodes))
	for i, addr := range s.Nodes {
		nodes[i] = &redis.Options{Addr: addr}
	}
	locker, err := redlock.New(nodes, s.Config)
	if err != nil {
		return err
	}
	defer locker.Close()
	p := &part{name: s.Name, locker: locker}
	orders, reports := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			return nil // the parent has ended
		}
		if err := reports.Encode(p.obey(o)); err != nil {
			return err
		}
	}
}

func (p *part) obey(o order) report {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	r := report{Began: monotonic()}
	err := p.carryOut(ctx, o, &r)
	r.Done = monotonic()
	if err != nil {
		r.Problem = err.Error()
		r.Held, r.Lost = errors.Is(err, lock.ErrHeld), errors.Is(err, lock.ErrLost)
		r.Quorum = errors.As(err, new(*lock.QuorumError))
	}
	if p.lease != nil {
		r.Token = p.lease.Token()
		r.Until = monotonic() + time.Until(p.lease.Until())
		r.Valid = p.lease.Context().Err() == nil
		r.At = monotonic()
	}
	return r
}

func (p *part) carryOut(ctx context.Context, o order, r *report) (err error) {
	switch o.Do {
	case "ready":
		return p.locker.Check(ctx)
	case "try":
		p.lease, err = p.locker.TryAcquire(ctx, o.Key)
		return err
	case "acquire":
		p.lease, err = p.locker.Acquire(ctx, o.Key)
		return err
	case "ask": // the report has the answer
		return nil
	case "step":
		if p.lease.Context().Err() != nil {
			return context.Cause(p.lease.Context())
		}
		fallthrough
	case "write":
		r.Status = make([]int, len(o.URLs))
		errs := make([]error, len(o.URLs))
		var all sync.WaitGroup
		for i, url := range o.URLs {
			all.Go(func() { r.Status[i], errs[i] = put(ctx, url, p.lease.Token(), p.name) })
		}
		all.Wait()
		return errors.Join(errs...)
	case "extend":
		return p.lease.Extend(ctx)
	case "release":
		return p.lease.Release(ctx)
	}
	return fmt.Errorf("what is %q?", o.Do)
}

// put writes to a register.
func put(ctx context.Context, url string, token int64, by string) (status int, err error) {
	url = fmt.Sprintf("%s?token=%d&by=%s", url, token, by)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, nil)
	if err != nil {
		return 0, err
	}
	req.Close = true // one connection for each write
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// A client is the test's view of such a process.
type client struct {
	*process
	name    string
	scene   *scene
	reports *json.Decoder
}

// newClient starts a client of these nodes.
func newClient(sc *scene, name string, nodes []string, c redlock.Config) (*client, error) {
	settings, err := json.Marshal(clientSettings{name, nodes, c})
	if err != nil {
		return nil, err
	}
	p, err := startChild(sc.stage.program, "client", string(settings))
	if err != nil {
		return nil, err
	}
	return &client{p, name, sc, json.NewDecoder(p.out)}, nil
}

// send sends an order. A stopped process executes it when it continues.
func (c *client) send(o order) error {
	return c.failed(o, json.NewEncoder(c.stdin).Encode(o))
}

// receive waits for the report of an order. If the report has a grant, it is added to the
// scene's.
func (c *client) receive(o order) (report, error) {
	_ = c.out.SetReadDeadline(time.Now().Add(callTimeout + time.Second))
	defer context.AfterFunc(c.scene.ctx, func() { _ = c.out.SetReadDeadline(time.Now()) })()
	var r report
	if err := c.reports.Decode(&r); err != nil {
		return r, c.failed(o, err)
	}
	if (o.Do == "try" || o.Do == "acquire") && r.Problem == "" {
		c.scene.grants.add(grant{c.name, o.Key, r.Token, r.Began, r.Done})
	}
	return r, nil
}

func (c *client) failed(o order, err error) error {
	if err == nil {
		return nil
	}
	if context.Cause(c.scene.ctx) != nil {
		err = context.Cause(c.scene.ctx)
	}
	return fmt.Errorf("%s, told to %s: %w\n%s", c.name, o.Do, err, c.output())
}

func (c *client) do(o order) (report, error) {
	if err := c.send(o); err != nil {
		return report{}, err
	}
	return c.receive(o)
}

// must executes an order that has to succeed.
func (c *client) must(o order) (report, error) {
	r, err := c.do(o)
	if err == nil && r.Problem != "" {
		err = c.failed(o, errors.New(r.Problem))
	}
	return r, err
}
