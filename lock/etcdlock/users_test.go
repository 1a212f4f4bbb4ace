package etcdlock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
)

// withUsers adds users who may lock to an etcd, and demands logins from then on.
func withUsers(t testing.TB, addr string, users ...string) {
	t.Helper()
	admin, ctx := dial(t, nil, addr), t.Context()
	steps := []func() error{
		func() error { _, err := admin.UserAdd(ctx, "root", "secret-of-root"); return err },
		func() error { _, err := admin.RoleAdd(ctx, "root"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := admin.RoleAdd(ctx, "locks"); return err },
		func() error {
			_, err := admin.RoleGrantPermission(ctx, "locks", defaultPrefix, clientv3.GetPrefixRangeEnd(defaultPrefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
	}
	for _, user := range users {
		steps = append(steps,
			func() error { _, err := admin.UserAdd(ctx, user, "secret-of-"+user); return err },
			func() error { _, err := admin.UserGrantRole(ctx, user, "locks"); return err })
	}
	steps = append(steps, func() error { _, err := admin.AuthEnable(ctx); return err })
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// loginAs returns a client with a user. It is closed when the test ends.
func loginAs(t testing.TB, user string, options []grpc.DialOption, addrs ...string) *clientv3.Client {
	t.Helper()
	c := clientv3.Config{Endpoints: addrs, Logger: zap.NewNop(), Username: user, DialOptions: options}
	if user != "" {
		c.Password = "secret-of-" + user
	}
	client, err := clientv3.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// endsLogins returns ways in which etcd forgets a client's login: after its time, and with a restart.
func endsLogins() map[string]func(testing.TB, *servertest.Server) {
	return map[string]func(testing.TB, *servertest.Server){
		"Idle": func(testing.TB, *servertest.Server) { <-time.After(2*loginTTL + time.Second) }, // etcd looks each second
		"Restart": func(t testing.TB, server *servertest.Server) {
			server.Kill()
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
		},
	}
}

const loginTTL = time.Second

// A process whose login ended, while it was idle or with a restart of etcd, locks again: the client logs in anew.
func TestLoginEnds(t *testing.T) {
	t.Parallel()
	for name, end := range endsLogins() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Etcd(t, 1, "--auth-token-ttl", "1")[0]
			withUsers(t, server.Addr(), "holder")
			tap, key := newTap(), newKey()
			client := loginAs(t, "holder", tap.options(), server.Addr())
			client.Auth = Relogin(client.Auth)
			r := newLocker(t, client, Config{TTL: time.Minute})
			release(t, acquire(t, r, key))
			before := tap.seen(methodLogin)
			end(t, server)
			l, err := r.TryAcquire(t.Context(), key)
			if err != nil {
				t.Fatalf("TryAcquire after the login ended: %v", err)
			}
			if name == "Idle" && tap.seen(methodLogin) == before { // etcd 3.5 remembers logins over a restart
				t.Error("the client needed no login: the test shows nothing")
			}
			release(t, l)

			// The same for a holder, and for a waiter that begins to watch.
			l = acquire(t, r, key)
			end(t, server)
			results := make(chan result, 1)
			go func() {
				l, err := r.Acquire(t.Context(), key)
				results <- result{l, err}
			}()
			eventually(t, func() bool { return tap.seen(methodWatch) > 0 || len(results) > 0 }, "the waiter watches")
			if err := l.Extend(t.Context()); err != nil {
				t.Errorf("Extend after the login ended: %v", err)
			}
			end(t, server)
			release(t, l)
			release(t, granted(t, results))
		})
	}
}

// Many calls that find the login ended log in at the same time, and all succeed.
func TestLoginEndsForMany(t *testing.T) {
	t.Parallel()
	server := servertest.Etcd(t, 1)[0]
	withUsers(t, server.Addr(), "holder")
	client := loginAs(t, "holder", nil, server.Addr())
	client.Auth = Relogin(client.Auth)
	r := newLocker(t, client, Config{TTL: time.Minute})
	release(t, acquire(t, r, newKey()))
	for range 3 {
		endsLogins()["Restart"](t, server)
		var asked sync.WaitGroup
		for range 16 {
			asked.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				l, err := r.Acquire(ctx, newKey())
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				if err := l.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
		asked.Wait()
	}
}

// An etcd where the client couldn't log in again is refused by the first call, and not after the login has ended.
func TestLoginCouldNotBeRepeated(t *testing.T) {
	t.Parallel()
	server := servertest.Etcd(t, 1)[0]
	withUsers(t, server.Addr(), "holder")
	client := loginAs(t, "holder", nil, server.Addr())
	s, err := client.Status(t.Context(), server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	r, key := newLocker(t, client, Config{TTL: time.Minute}), newKey()
	for name, ask := range map[string]func(context.Context, string) (lock.Lock, error){"TryAcquire": r.TryAcquire, "Acquire": r.Acquire} {
		l, err := ask(t.Context(), key)
		if !strings.HasPrefix(s.Version, "3.4.") {
			if err != nil {
				t.Errorf("%s at etcd %s: %v", name, s.Version, err)
				continue
			}
			release(t, l)
			continue
		}
		if l != nil || !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "client.Auth = etcdlock.Relogin(client.Auth)") || !strings.Contains(err.Error(), s.Version) {
			t.Errorf("%s at etcd %s: %v, %v", name, s.Version, l, err)
		}
	}
}

// A gateway before etcd may refuse Status to clients. The locker asks for it once then, and not before each acquire. If the call fails for another
// reason, the next acquire asks again.
func TestStatusIsRefused(t *testing.T) {
	t.Parallel()
	server := servertest.Etcd(t, 1)[0]
	withUsers(t, server.Addr(), "holder")
	for code, want := range map[codes.Code]int32{codes.PermissionDenied: 1, codes.Unauthenticated: 1, codes.Unimplemented: 1, codes.Unavailable: 3} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			client := loginAs(t, "holder", []grpc.DialOption{grpc.WithChainUnaryInterceptor(
				func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					if method == "/etcdserverpb.Maintenance/Status" {
						asked.Add(1)
						return status.Error(code, "not here")
					}
					return invoke(ctx, method, req, reply, cc, opts...)
				})}, server.Addr())
			r := newLocker(t, client, Config{TTL: time.Minute})
			for range 3 {
				release(t, acquire(t, r, newKey()))
			}
			if n := asked.Load(); n < want || n > 1 && want == 1 { // the client may repeat a call
				t.Errorf("three acquires asked for it %d times, want %d", n, want)
			}
		})
	}
}

// A wrong password is no reason to log in again and again.
func TestLoginIsRefused(t *testing.T) {
	t.Parallel()
	server := servertest.Etcd(t, 1, "--auth-token-ttl", "1")[0]
	withUsers(t, server.Addr(), "holder")
	tap := newTap()
	client := loginAs(t, "holder", tap.options(), server.Addr())
	client.Auth = Relogin(client.Auth)
	r := newLocker(t, client, Config{TTL: time.Minute})
	release(t, acquire(t, r, newKey()))
	client.Password = "another"
	endsLogins()["Idle"](t, server)
	before := tap.seen(methodLogin)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if l, err := r.TryAcquire(ctx, newKey()); l != nil || err == nil || !errors.Is(err, rpctypes.ErrAuthFailed) {
		t.Errorf("TryAcquire with a wrong password: %v, %v", l, err)
	}
	if n := tap.seen(methodLogin) - before; n > 4 {
		t.Errorf("%d logins", n)
	}
}

// An authStub answers logins when the test says so.
type authStub struct {
	clientv3.Auth
	asked chan string // the passwords
	reply chan error
}

func (a *authStub) Authenticate(ctx context.Context, _, password string) (*clientv3.AuthenticateResponse, error) {
	a.asked <- password
	select {
	case err := <-a.reply:
		return &clientv3.AuthenticateResponse{Token: password}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Calls that need the same login share it. If its caller leaves, another logs in. A login with another password is one of
// its own, and a failure is everybody's.
func TestLoginsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var forgets atomic.Bool
		stub := &authStub{asked: make(chan string, 100), reply: make(chan error)}
		auth := Relogin(stub)
		results := make(chan error, 100)
		login := func(ctx context.Context, password string) {
			resp, err := auth.Authenticate(ctx, "holder", password)
			if err == nil && resp.Token != password && !forgets.Load() {
				t.Errorf("the token of %q, for %q", resp.Token, password)
			}
			results <- err
		}
		ctx, leave := context.WithCancel(t.Context())
		go login(ctx, "a")
		synctest.Wait()
		for range 3 {
			go login(t.Context(), "a")
		}
		synctest.Wait()
		go login(t.Context(), "b")
		synctest.Wait()
		if n := len(stub.asked); n != 2 {
			t.Fatalf("%d logins; want 2: of a and b", n)
		}
		leave()
		synctest.Wait()
		if err := <-results; !errors.Is(err, context.Canceled) || len(results) > 0 {
			t.Fatalf("the caller that left: %v, and %d others", err, len(results))
		}
		if n := len(stub.asked); n != 3 {
			t.Fatalf("%d logins; want 3: one of those that stay logs in", n)
		}
		stub.reply <- nil
		stub.reply <- nil
		for range 4 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		for range 3 {
			go login(t.Context(), "a")
		}
		synctest.Wait()
		stub.reply <- rpctypes.ErrAuthFailed
		for range 3 {
			if err := <-results; !errors.Is(err, rpctypes.ErrAuthFailed) {
				t.Errorf("a refused login: %v", err)
			}
		}
		forgets.Store(true)
		go login(t.Context(), "a")
		synctest.Wait()
		stub.reply <- rpctypes.ErrInvalidAuthToken // of a client that doesn't repeat a login: it is to forget its token
		if err := <-results; err != nil {
			t.Errorf("a refused token: %v", err)
		}
		resp, err := auth.Authenticate(context.WithValue(t.Context(), inLogin{}, true), "holder", "a")
		if err != nil || resp.Token != "" {
			t.Errorf("a login within a login: %v, %v", resp, err)
		}
	})
}
