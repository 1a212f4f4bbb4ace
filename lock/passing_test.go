package lock

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// What passes soon is waited out by each call: a slot that migrates, a Cluster that fails over, a server that loads.
func TestPassingAnswersAreWaitedOut(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"-TRYAGAIN Multiple keys request during rehashing of slot", "-CLUSTERDOWN Hash slot not served",
		"-LOADING Redis is loading the dataset in memory",
	} {
		for name, heeds := range map[string]bool{"by default": false, "ContextTimeoutEnabled": true} {
			t.Run(line[1:4]+" "+name, func(t *testing.T) {
				t.Parallel()
				s, key := redistest.Start(t), redistest.Name(t)
				proxy := redistest.NewProxy(t, s.Addr())
				locker := newRedis(proxy.ClientWith(func(o *redis.UniversalOptions) {
					o.MaxRetries, o.ContextTimeoutEnabled = -1, heeds
				}))
				script := func(s *redis.Script) func([]string) bool { return redistest.Command("EVALSHA", s.Hash()) }
				release(t, acquire(t, locker, key)) // the server knows the scripts
				proxy.Reply(script(acquireScript), line, 3)
				l, err := locker.TryAcquire(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				proxy.Reply(redistest.Command("EVAL"), line, 1)
				proxy.Reply(script(extendScript), line, 3)
				if err := l.Extend(t.Context()); err != nil {
					t.Error(err)
				}
				proxy.Reply(script(freeScript), line, 3)
				release(t, l)

				proxy.Reply(script(acquireScript), line, -1)
				_, err = patiently(t, nil, func(err error) bool { return redis.HasErrorPrefix(err, line[1:5]) }, func(ctx context.Context) error {
					_, err := locker.Acquire(ctx, key)
					return err
				})
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrHeld) || !redis.HasErrorPrefix(err, line[1:5]) {
					t.Errorf("until ctx ends: %v", err)
				}
			})
		}
	}
}
