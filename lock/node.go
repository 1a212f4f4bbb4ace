package lock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// morePatience is how much longer than by those who ask a node's reply is waited for. What
// comes later is not heard, and the connection is closed.
const morePatience = time.Second

// A node is one of the N servers of a Redlock, on connections of its own.
type node struct {
	redlock *Redlock
	index   int
	addr    string
	rdb     *redis.Client
	wire    wire
	// patience bounds what is under way.
	patience time.Duration
	// Of the wire's goroutine:
	conn *redis.Conn
	used time.Time // when it was
	cmds []*redis.Cmd

	mu     sync.Mutex
	known  bool // it was looked at, and no connection failed since
	unfit  error
	looked time.Time
	looks  int
	// undialed is why the last attempt to connect failed.
	undialed error
	memory   memory
	clock    int64 // the server's, µs, at
	at       time.Time

	leftovers leftovers
}

func newNode(r *Redlock, index int, given *redis.Options, delay time.Duration) *node {
	n := &node{redlock: r, index: index, addr: given.Addr, patience: r.nodeTimeout + morePatience}
	n.memory.delay = delay
	n.wire.init(n.carry)
	n.leftovers.node = n
	o := *given
	if o.Addr == "" {
		n.addr = "localhost:6379" // as go-redis has it
	}
	// What would repeat a command, hold it up or answer it from elsewhere is off.
	o.ContextTimeoutEnabled = true
	o.MaxRetries, o.DialerRetries = -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = n.patience, n.patience, n.patience, n.patience
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.PipelinePoolSize = 2, 0, 0, 0, -1
	o.DisableIdentity = true
	if o.Protocol == 0 {
		o.Protocol = 2 // nothing is pushed to us, and to look for it takes time
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

// name is how errors call it.
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
	marker, refused, due := n.terms()
	pipe := n.connection().Pipeline()
	cmds := append(n.cmds[:0], make([]*redis.Cmd, len(batch))...)
	for i, k := range batch {
		switch {
		case k.grant && refused != nil:
			k.done(outcome{err: notSent{refused}})
			continue
		case k.script == nil:
			k.done(outcome{})
			continue
		case k.grant:
			k.args[len(k.args)-1] = marker
		}
		cmds[i] = k.command(ctx, false)
		_ = pipe.Process(ctx, cmds[i]) // it is only queued
	}
	var info *redis.StringCmd
	if due {
		info = pipe.Info(ctx)
	}
	sent := time.Now()
	if n.exec(ctx, pipe) {
		for i, k := range batch {
			if cmds[i] != nil && cmds[i].Err() != nil && redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
				cmds[i] = k.command(ctx, true)
				_ = pipe.Process(ctx, cmds[i])
			}
		}
		n.exec(ctx, pipe)
	}
	if info != nil && info.Err() == nil {
		n.judge(parseServerInfo(info.Val()), sent)
	}
	for i, k := range batch {
		if cmds[i] != nil {
			reply, err := cmds[i].Result()
			k.done(outcome{reply, err, sent})
		}
	}
	clear(cmds)
	n.cmds = cmds
}

// exec runs a pipeline. Each command has its error; one that is no answer means that the
// connection is lost, and one of a replica that it is to be: the server is looked at again.
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

// connection is the one that the node is used by. After a pause it is given back and another
// is taken: the pool finds out which of them the server has closed meanwhile.
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

// terms are on what the node is asked for locks: the marker, or why it isn't.
func (n *node) terms() (marker string, refused error, due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	refused = n.unfit
	if refused == nil {
		refused = n.memory.resting()
	}
	if refused == nil && n.memory.delay > 0 && n.memory.marker == "" {
		refused = errForgot
	}
	return n.memory.marker, refused, time.Since(n.looked) > lookAgain
}

// found is what the last look found wrong with the node.
func (n *node) found() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unfit
}

// introduce makes sure, before anything is sent, that the server answers, is fit, and that
// its memory is known. So one that is down or hangs never gets a request.
func (n *node) introduce() error {
	n.mu.Lock()
	known, looks := n.known, n.looks
	n.mu.Unlock()
	if known {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.patience)
	defer cancel()
	conn := n.connection()
	if err := conn.Ping(ctx).Err(); err != nil { // over a new connection, that looks
		n.hangUp()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.unfit = nil // who knows
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

// check looks again, and returns why the node doesn't count.
func (n *node) check(ctx context.Context) error {
	n.mu.Lock()
	n.known = false
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
		return ended(ctx)
	}
}

// setClock notes what the server's clock was. It was read after the request was sent, so
// what is derived from that moment is ahead of the server by about the time that a
// request takes to get there: as a proposal should be.
func (n *node) setClock(now int64, sent time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if sent.After(n.at) {
		n.clock, n.at = now, sent
	}
}

// clockNow is what the server's clock shows, µs.
func (n *node) clockNow() (now int64, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.clock + time.Since(n.at).Microseconds(), n.clock != 0
}
