package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signalbox-go/signalbox/lock"
)

// Relogin returns an Auth that lets a client log in again at an etcd older than 3.5. Such an etcd refuses a login that
// carries the token of an earlier one which has ended, and the client (3.6 or later) always sends its last token. So once
// the token has ended, each call would fail: after 5 minutes without a call, or when a server has restarted.
//
// Set it before the client is used, if etcd is older than 3.5 and has users. A newer etcd doesn't need it, and it does no
// harm there:
//
//	client, err := clientv3.New(config)
//	// ...
//	client.Auth = etcdlock.Relogin(client.Auth)
func Relogin(auth clientv3.Auth) clientv3.Auth { return &relogin{Auth: auth} }

// relogin makes a client forget a token that etcd refuses. A client stores the token of each answer to a login: an answer
// with an empty token empties it.
type relogin struct {
	clientv3.Auth

	mu  sync.Mutex
	now *login // the login on its way, if there is one
}

// A login is one on its way. Others that need the same one wait for it: etcd makes logins expensive. Also, none of them can
// empty a token that another one has just stored.
type login struct {
	name, password string

	done chan struct{} // closed when the fields below are set
	resp *clientv3.AuthenticateResponse
	err  error
	left bool // the login's own caller left before the end: that says nothing about others
}

// inLogin marks the context of a login.
type inLogin struct{}

// Authenticate logs in. If etcd refuses the login's token, the client calls Authenticate once more within that login,
// stores the empty token that it returns, and repeats the login.
func (r *relogin) Authenticate(ctx context.Context, name, password string) (*clientv3.AuthenticateResponse, error) {
	if ctx.Value(inLogin{}) != nil {
		return &clientv3.AuthenticateResponse{}, nil
	}
	for {
		l, mine := r.join(name, password)
		if mine {
			l.resp, l.err = r.login(ctx, name, password)
			l.left = l.err != nil && ctx.Err() != nil
			r.end(l)
		}
		select {
		case <-l.done:
			if mine || !l.left {
				return l.resp, l.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// join returns the login on its way, or a new one of the caller's own.
func (r *relogin) join(name, password string) (l *login, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.now; l != nil && l.name == name && l.password == password {
		return l, false
	}
	l = &login{name: name, password: password, done: make(chan struct{})}
	if r.now == nil {
		r.now = l
	}
	return l, true
}

func (r *relogin) end(l *login) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == l {
		r.now = nil
	}
	close(l.done)
}

func (r *relogin) login(ctx context.Context, name, password string) (*clientv3.AuthenticateResponse, error) {
	resp, err := r.Auth.Authenticate(context.WithValue(ctx, inLogin{}, true), name, password)
	if errors.Is(err, rpctypes.ErrInvalidAuthToken) {
		// This client doesn't repeat a login. It stores the empty token, is told by its next try that it sent none, and
		// logs in.
		return &clientv3.AuthenticateResponse{}, nil
	}
	return resp, err
}

// A loginCheck finds out once whether the client can log in again when its token has ended.
type loginCheck struct{ done atomic.Bool }

// check returns an error if it can't. If etcd doesn't answer properly, check leaves the error to the call that follows, and asks again before
// the next one. A server or a gateway that refuses to say its version is asked once.
func (c *loginCheck) check(ctx context.Context, r *Locker) error {
	if c.done.Load() {
		return nil
	}
	if _, ok := r.client.Auth.(*relogin); !ok && r.client.Username != "" && r.client.Token == "" {
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		s, err := etcdserverpb.NewMaintenanceClient(r.client.ActiveConnection()).Status(callCtx, &etcdserverpb.StatusRequest{})
		if err != nil {
			if callCtx.Err() != nil {
				return r.answer(ctx, callCtx, err)
			}
			switch status.Code(err) {
			case codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
				c.done.Store(true)
			}
			return nil
		}
		var major, minor int
		if _, err := fmt.Sscanf(s.Version, "%d.%d", &major, &minor); err == nil && (major < 3 || major == 3 && minor < 5) {
			return fmt.Errorf("%w: this etcd is %.20s and has users: there the client couldn't log in again, and each call would fail once its login has ended; "+
				"set client.Auth = etcdlock.Relogin(client.Auth) before the client is used, or use etcd 3.5 or later", lock.ErrInvalid, s.Version)
		}
	}
	c.done.Store(true)
	return nil
}
