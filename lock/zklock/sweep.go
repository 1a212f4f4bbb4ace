package zklock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// sweepPause is between two tries while ZooKeeper doesn't answer.
const sweepPause = 200 * time.Millisecond

// A leftover is what an acquire may have left behind: nodes of this key with this ID in their names.
type leftover struct{ path, id string }

// A sweeper deletes leftovers in one goroutine, until there are none or the locker is closed.
type sweeper struct {
	locker *Locker

	mu   sync.Mutex
	left map[leftover]struct{}
	idle chan struct{} // closed when there are none; nil: nobody sweeps
}

func (s *sweeper) add(k *zkLock) {
	s.locker.forget(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == nil {
		s.left = map[leftover]struct{}{}
	}
	s.left[leftover{k.path, k.id}] = struct{}{}
	if s.idle != nil {
		return
	}
	idle := make(chan struct{})
	if s.locker.session.run(func() { s.run(idle) }) {
		s.idle = idle
	}
}

func (s *sweeper) run(idle chan struct{}) {
	defer close(idle)
	ctx := s.locker.session.ctx
	for failed := false; ; {
		s.mu.Lock()
		var next leftover
		for next = range s.left {
			break
		}
		if len(s.left) == 0 || ctx.Err() != nil {
			s.idle = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if failed && !pause(ctx, sweepPause) {
			continue
		}
		failed = s.sweep(ctx, next) != nil
		if !failed {
			s.mu.Lock()
			delete(s.left, next)
			s.mu.Unlock()
		}
	}
}

// wait returns when there are no leftovers, or ctx ends.
func (s *sweeper) wait(ctx context.Context) {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

func (s *sweeper) sweep(ctx context.Context, o leftover) error {
	session := s.locker.session
	children, err := ask(ctx, session, func(c *zk.Conn) ([]string, error) {
		// The server must know what it was asked for before a connection broke.
		if _, err := c.Sync(o.path); err != nil {
			return nil, err
		}
		children, _, err := c.Children(o.path)
		return children, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	for _, name := range children {
		if err == nil && strings.Contains(name, "-"+o.id) {
			_, err = ask(ctx, session, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(o.path+"/"+name, -1) })
			if errors.Is(err, zk.ErrNoNode) {
				err = nil
			}
		}
	}
	return err
}
