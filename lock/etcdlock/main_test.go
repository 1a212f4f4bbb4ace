package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/locktest"
)

// patience bounds every wait for something that must come. It is long since a machine under load is slow.
const patience = 30 * time.Second

// shared is one etcd for all tests that don't break it. TestMain ends it.
var shared struct {
	sync.Mutex
	server *servertest.Server
}

func sharedEtcd(t testing.TB) *servertest.Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		members, err := servertest.NewEtcd(1)
		var missing servertest.ErrMissing
		if errors.As(err, &missing) && os.Getenv("SIGNALBOX_TEST_REDIS") != "required" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		shared.server = members[0]
	}
	return shared.server
}

func TestMain(m *testing.M) {
	locktest.Child(func(addr string, ttl time.Duration) (lock.Locker, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		return New(client, Config{TTL: ttl})
	})
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "16") // the tests mostly wait, for leases to end and for servers
	}
	if _, err := exec.LookPath("etcd"); err != nil && os.Getenv("SIGNALBOX_TEST_REDIS") != "required" {
		_ = flag.Set("test.skip", "^Example") // an example can't skip itself
	}
	code := m.Run()
	if shared.server != nil {
		shared.server.Close()
	}
	if code == 0 {
		var err error
		if !poll(func() bool { err = goleak.Find(); return err == nil }) {
			fmt.Fprintln(os.Stderr, "goroutines left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// poll calls cond every few ms until it is true. It reports whether that came within the patience.
func poll(cond func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		if cond() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

func eventually(t testing.TB, cond func() bool, what string) {
	t.Helper()
	if !poll(cond) {
		t.Fatalf("still not so after %v: %s", patience, what)
	}
}

func newKey() string { return "test-" + rand.Text() }

// taps has the tap of each client that was made without options.
var taps sync.Map

// dial returns a client of these addresses. It is closed when the test ends.
func dial(t testing.TB, options []grpc.DialOption, addrs ...string) *clientv3.Client {
	t.Helper()
	var p *tap
	if options == nil {
		p = newTap()
		options = p.options()
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: addrs, DialOptions: options, Logger: zap.NewNop(),
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	if p != nil {
		taps.Store(client, p)
	}
	t.Cleanup(func() {
		taps.Delete(client)
		client.Close()
	})
	return client
}

func newLocker(t testing.TB, client *clientv3.Client, c Config) *Locker {
	t.Helper()
	r, err := New(client, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lockerOn returns a locker with a client of its own, as another process has.
func lockerOn(t testing.TB, ttl time.Duration, addrs ...string) *Locker {
	t.Helper()
	return newLocker(t, dial(t, nil, addrs...), Config{TTL: ttl})
}

func acquire(t testing.TB, r lock.Locker, key string) lock.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := r.Acquire(ctx, key)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return l
}

func release(t testing.TB, l lock.Lock) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// refused fails the test unless the lock is held.
func refused(t testing.TB, r lock.Locker, key string) {
	t.Helper()
	if l, err := r.TryAcquire(t.Context(), key); l != nil || !errors.Is(err, lock.ErrHeld) {
		t.Errorf("TryAcquire: %v, %v; want ErrHeld", l, err)
	}
}

// waiting calls Acquire in the background, and returns when its place is in the queue. The others in the queue are so many.
func waiting(ctx context.Context, t testing.TB, r *Locker, see *clientv3.Client, key string, others int64) <-chan result {
	t.Helper()
	results := make(chan result, 1)
	go func() {
		l, err := r.Acquire(ctx, key)
		results <- result{l, err}
	}()
	eventually(t, func() bool { return places(t, see, key) == others+1 || len(results) > 0 }, "the waiter has a place")
	if p, ok := taps.Load(r.client); ok { // it knows of its place
		eventually(t, func() bool { return p.(*tap).seen(methodWatch) > 0 || len(results) > 0 }, "the waiter watches")
	}
	return results
}

// A result is that of an Acquire.
type result struct {
	lock lock.Lock
	err  error
}

// get waits for a result.
func get(t testing.TB, results <-chan result) (lock.Lock, error) {
	t.Helper()
	select {
	case r := <-results:
		return r.lock, r.err
	case <-time.After(patience):
		t.Fatalf("Acquire has not returned after %v", patience)
		return nil, nil
	}
}

// granted waits for a result that must be a lock.
func granted(t testing.TB, results <-chan result) lock.Lock {
	t.Helper()
	l, err := get(t, results)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return l
}

// lost waits until a lock's context ends with ErrLost.
func lost(t testing.TB, l lock.Lock) {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(patience):
		t.Fatal("the lock is not lost")
	}
	if cause := context.Cause(l.Context()); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("the cause is %v; want ErrLost", cause)
	}
}

// places counts the places in a lock's queue.
func places(t testing.TB, see *clientv3.Client, key string) int64 {
	t.Helper()
	queue, err := queueOf(defaultPrefix, key)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := see.Get(t.Context(), queue, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return resp.Count
}

// leaseOf returns the lease of a lock.
func leaseOf(l lock.Lock) clientv3.LeaseID { return l.(*heldLock).place.id }

// leaderOf returns the index of the member that leads.
func leaderOf(t testing.TB, client *clientv3.Client, members []*servertest.Server) (leader int) {
	t.Helper()
	leader = -1
	eventually(t, func() bool {
		for i, m := range members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s, err := client.Status(ctx, m.Addr())
			cancel()
			if err == nil && s.Leader != 0 && s.Leader == s.Header.MemberId {
				leader = i
			}
		}
		return leader >= 0
	}, "one leads")
	return leader
}

// addrs returns the addresses of members.
func addrs(members []*servertest.Server) []string {
	var all []string
	for _, m := range members {
		all = append(all, m.Addr())
	}
	return all
}

// A tap sees the calls of a client, and may spoil their replies.
type tap struct {
	mu     sync.Mutex
	counts map[string]int // by method
	lose   map[string]int // how many replies to a method are still lost
	after  func(method string, req, reply any)
}

var errReplyLost = errors.New("the reply was lost")

func newTap() *tap { return &tap{counts: map[string]int{}, lose: map[string]int{}} }

// options make a client use the tap.
func (p *tap) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			p.count(method)
			if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
				return err
			}
			return p.passed(method, req, reply)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			p.count(method)
			s, err := streamer(ctx, desc, cc, method, opts...)
			return &tappedStream{s, p, method}, err
		}),
	}
}

func (p *tap) count(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[method]++
}

// passed is called with each reply. It returns an error if the reply is to be lost.
func (p *tap) passed(method string, req, reply any) error {
	p.mu.Lock()
	lose, after := p.lose[method] > 0, p.after
	if lose {
		p.lose[method]--
	}
	p.mu.Unlock()
	if after != nil {
		after(method, req, reply)
	}
	if lose {
		return errReplyLost
	}
	return nil
}

// loseNext loses the replies to the next n calls of a method.
func (p *tap) loseNext(method string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose[method] = n
}

// onReply calls f with each reply from now on.
func (p *tap) onReply(f func(method string, req, reply any)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = f
}

// seen returns the number of calls of a method.
func (p *tap) seen(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[method]
}

// calls returns the number of calls, and forgets them.
func (p *tap) calls() (n int, by map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	by = p.counts
	p.counts = map[string]int{}
	for _, c := range by {
		n += c
	}
	return n, by
}

type tappedStream struct {
	grpc.ClientStream
	tap    *tap
	method string
}

func (s *tappedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	return s.tap.passed(s.method, nil, m)
}

// Methods of etcd.
var (
	methodTxn    = etcdserverpb.KV_Txn_FullMethodName
	methodKeep   = etcdserverpb.Lease_LeaseKeepAlive_FullMethodName
	methodGrant  = etcdserverpb.Lease_LeaseGrant_FullMethodName
	methodRevoke = etcdserverpb.Lease_LeaseRevoke_FullMethodName
	methodLogin  = etcdserverpb.Auth_Authenticate_FullMethodName
	methodWatch  = etcdserverpb.Watch_Watch_FullMethodName
)
