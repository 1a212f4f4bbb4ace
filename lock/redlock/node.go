package redlock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/signalbox-go/signalbox/internal/lease"
)

// morePatience is how long a late reply is still awaited after its caller gave up. After that the connection
// is closed.
const morePatience = time.Second

// A node is one of the N servers of a Locker. It has connections of its own.
type node struct {
	locker *Locker
	index  int
	addr   string
	rdb    *redis.Client
	wire   wire
	// patience bounds each call that is under way.
	patience time.Duration
	// Only the wire's goroutine uses these.
	conn *redis.Conn
	used time.Time // when conn was used last
	cmds []*redis.Cmd

	mu     sync.Mutex
	known  bool // the server was checked, and no connection has failed since
	unfit  error
	looked time.Time
	looks  int
	// undialed is why the last attempt to connect failed; nil: it succeeded.
	undialed error
	memory   memory
	clock    int64 // what the server's clock showed at the moment at, µs; 0: unknown
	at       time.Time
	deadline deadline

	leftovers leftovers
}

func newNode(r *Locker, index int, given *redis.Options, delay time.Duration) *node {
	n := &node{locker: r, index: index, addr: given.Addr, patience: r.nodeTimeout + morePatience}
	n.memory = memory{delay: delay, markerArg: "", floorArg: 0}
	n.wire.init(n.carry)
	n.leftovers.node = n
	o := *given
	if o.Addr == "" {
		n.addr = "localhost:6379" // the default of go-redis
	}
	// Off is whatever would repeat a command, delay it, or answer it from elsewhere.
	o.ContextTimeoutEnabled = true
	o.MaxRetries, o.DialerRetries = -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = n.patience, n.patience, n.patience, n.patience
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.PipelinePoolSize = 2, 0, 0, 0, -1
	o.DisableIdentity = true
	if o.Protocol == 0 {
		o.Protocol = 2 // the server pushes nothing to us, and checking for pushed messages takes time
	}
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ClientSideCache, o.ClientSideCacheConfig, o.AutoPipelineOptions = nil, nil, nil
	o.Dialer = n.dialer(given)
	o.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
		if given.OnConnect != nil {
			if err := given.OnConnect(ctx, conn); err != nil {
				return err
			}
		}
		return n.look(ctx, conn)
	}
	n.rdb = redis.NewClient(&o)
	return n
}

// name returns what errors call the node.
func (n *node) name() string { return fmt.Sprintf("nodes[%d] (%s)", n.index, n.addr) }

// carry sends a batch in one pipeline and hands out the replies.
func (n *node) carry(batch []*request) {
	if err := n.introduce(); err != nil {
		for _, k := range batch {
			k.done(outcome{err: notSent{err}})
		}
		return
	}
	ctx := context.Background() // the connection's timeouts are enough
	terms := n.terms()
	pipe := n.connection().Pipeline()
	cmds := append(n.cmds[:0], make([]*redis.Cmd, len(batch))...)
	for i, k := range batch {
		switch {
		case k.grant && terms.refused != nil:
			k.done(outcome{err: notSent{terms.refused}})
			continue
		case k.script == nil:
			k.done(outcome{})
			continue
		case k.grant:
			terms.tell(k)
		}
		cmds[i] = k.command(ctx, false)
		_ = pipe.Process(ctx, cmds[i]) // this only queues the command
	}
	var info *redis.StringCmd
	if terms.due {
		info = pipe.Info(ctx)
	}
	sent := time.Now()
	if n.exec(ctx, pipe) {
		for i, k := range batch {
			switch {
			case cmds[i] == nil:
				continue
			case cmds[i].Err() != nil && redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT"):
				cmds[i] = k.command(ctx, true)
			case k.grant && cameLate(cmds[i], sent, n):
				n.terms().tell(k) // the node's clock has jumped ahead, and we know it now
				cmds[i] = k.command(ctx, false)
			default:
				continue
			}
			_ = pipe.Process(ctx, cmds[i])
		}
		n.exec(ctx, pipe)
	}
	if info != nil && info.Err() == nil {
		n.judge(parseServerInfo(info.Val()), sent)
	}
	for i, k := range batch {
		if cmds[i] != nil {
			reply, err := cmds[i].Result()
			k.done(outcome{reply, err, sent, terms.memory})
		}
	}
	clear(cmds)
	n.cmds = cmds
}

// exec runs a pipeline. It reports whether every command was answered. Each command has its own error. If one has
// no answer, or a replica answers, exec closes the connection, and the server is checked before its next use.
func (n *node) exec(ctx context.Context, pipe redis.Pipeliner) (whole bool) {
	if pipe.Len() == 0 {
		return true
	}
	whole = true
	again := false
	cmds, _ := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			_, answered := err.(redis.Error) // not by errors.As: a lost connection may wrap its last answer
			whole = whole && answered
			again = again || !answered || redis.HasErrorPrefix(err, "READONLY")
		}
	}
	if again {
		n.hangUp()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.known = false
	}
	return whole
}

// connection returns the connection to the node. After a pause it gives the old one back and takes another:
// the pool finds out which connections the server has closed meanwhile.
func (n *node) connection() *redis.Conn {
	now := time.Now()
	if now.Sub(n.used) > wireLinger {
		n.hangUp()
	}
	if n.conn == nil {
		n.conn = n.rdb.Conn()
	}
	n.used = now
	return n.conn
}

func (n *node) hangUp() {
	if n.conn != nil {
		_ = n.conn.Close()
		n.conn = nil
	}
}

// terms say whether a node is asked for locks now, and with which arguments.
type terms struct {
	refused       error // why the node is not asked; nil: it is
	marker, floor any   // of the node's memory
	memory        string
	deadline      any  // by the server's clock, µs; a request that arrives later does nothing; 0: there is none
	due           bool // the server is to be checked again
}

// A deadline is the moment from which a node refuses a request, by the node's clock, µs. It is up to
// deadlineStep later than needed, so that many requests have the same.
type deadline struct {
	at  int64
	arg any // at, as an argument of the script
}

const deadlineStep = int64(100 * time.Millisecond / time.Microsecond)

// atLeast returns a deadline of at or a little later, as an argument of the script.
func (d *deadline) atLeast(at int64) any {
	if d.at < at || d.at > at+deadlineStep {
		d.at = at + deadlineStep
		d.arg = d.at
	}
	return d.arg
}

func (n *node) terms() terms {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := terms{refused: n.unfit, marker: n.memory.markerArg, floor: n.memory.floorArg, memory: n.memory.marker, deadline: 0, due: time.Since(n.looked) > lookAgain}
	if t.refused == nil {
		t.refused = n.memory.resting()
	}
	if t.refused == nil && n.memory.delay > 0 && n.memory.marker == "" {
		t.refused = errForgot
	}
	if n.clock != 0 { // from then on nobody reads the answer
		t.deadline = n.deadline.atLeast(n.clock + (time.Since(n.at) + n.patience).Microseconds())
	}
	return t
}

// tell fills in the last arguments of a request for a lock.
func (t terms) tell(k *request) {
	end := len(k.args)
	k.args[end-3], k.args[end-2], k.args[end-1] = t.marker, t.floor, t.deadline
}

// cameLate reports whether the node refused a request as too late. Its answer came in time, so its clock has jumped
// ahead. The new clock is noted.
func cameLate(cmd *redis.Cmd, sent time.Time, n *node) bool {
	fields, _ := cmd.Val().([]any)
	if len(fields) != 2 || fields[0] != int64(statusLate) {
		return false
	}
	now, ok := fields[1].(int64)
	if ok {
		n.setClock(now, sent)
	}
	return ok
}

// doubt makes the node be checked before it is used again.
func (n *node) doubt() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = false
}

func (n *node) forgetClock() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock = 0
}

// introduce makes sure that the server answers, that it is fit, and that its memory is known. It runs before any request
// is sent. So a server that is down or hangs gets no request.
func (n *node) introduce() error {
	n.mu.Lock()
	known, looks := n.known, n.looks
	justLooked := n.unfit != nil && time.Since(n.looked) < lookUnfit
	n.mu.Unlock()
	if known || justLooked {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.patience)
	defer cancel()
	conn := n.connection()
	if err := conn.Ping(ctx).Err(); err != nil { // a new connection runs look first
		n.hangUp()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.unfit = nil // it may be another server by now
		return cmp.Or(n.undialed, err)
	}
	n.mu.Lock()
	looked := n.looks > looks
	n.mu.Unlock()
	if !looked {
		if err := n.look(ctx, conn); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = n.unfit == nil
	return nil
}

// check looks at the server again. It returns why the node doesn't count; nil: it does.
func (n *node) check(ctx context.Context) error {
	n.mu.Lock()
	n.known, n.looked = false, time.Time{}
	n.mu.Unlock()
	result := make(chan error, 1)
	n.wire.send(&request{grant: true, done: func(out outcome) { result <- out.err }})
	timer := time.NewTimer(n.patience)
	defer timer.Stop()
	select {
	case err := <-result:
		return err
	case <-timer.C:
		return noAnswer(n.patience)
	case <-ctx.Done():
		return lease.Ended(ctx)
	}
}

// setClock notes what the server's clock showed. The server read it after the request was sent. So a time that is
// derived from the moment of sending is ahead of the server, by about the time that a request takes to
// arrive. Proposals should be ahead like that.
func (n *node) setClock(now int64, sent time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.clock == 0 || sent.After(n.at) && time.Since(sent) < morePatience {
		n.clock, n.at = now, sent
	}
}

// clockNow returns what the server's clock shows, µs; 0: unknown.
func (n *node) clockNow() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.clock == 0 {
		return 0
	}
	return n.clock + time.Since(n.at).Microseconds()
}
