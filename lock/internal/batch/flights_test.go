package batch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// echoes answers each command of a client with its last argument, at once and without a server.
type echoes struct{}

func (echoes) answer(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		args := cmd.Args()
		cmd.(*redis.Cmd).SetVal(args[len(args)-1])
	}
}

func (echoes) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") }
}

func (e echoes) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { e.answer(cmd); return nil }
}

func (e echoes) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error { e.answer(cmds...); return nil }
}

// Callers come back at the moment when the flights that rest would end, and some leave at
// once. No call is forgotten, or it would have to wait for a flight of its own; and
// nothing is left over of those that woke a flight which was ending.
func TestCallersComeAndGo(t *testing.T) {
	for name, heeds := range map[string]bool{"by default": false, "ContextTimeoutEnabled": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rdb := redis.NewClient(&redis.Options{
					ContextTimeoutEnabled: heeds, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
				})
				defer rdb.Close()
				rdb.AddHook(echoes{})
				var all sync.WaitGroup
				for range 8 {
					for _, crowd := range []int{1, 2, 2 * maxFlights, 2 * maxSelf} {
						all.Go(func() { comeAndGo(t, New(rdb, timeout), crowd) })
					}
				}
				all.Wait()
				time.Sleep(time.Minute) // for what lingers
			})
		})
	}
}

func comeAndGo(t *testing.T, c *Caller, crowd int) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			for k := range 200 {
				if k%10 == 0 {
					_, _ = c.Call(gone, timeout, echo, nil, []any{"left"}, nil)
				}
				start, want := time.Now(), fmt.Sprint(i, k)
				if got, err := c.Call(t.Context(), timeout, echo, nil, []any{want}, nil); got != want || err != nil {
					t.Errorf("the reply to %s is %v, %v", want, got, err)
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("one of %d callers: no flight took the call for %v", crowd, took)
					return
				}
				time.Sleep(flightLinger)
			}
		})
	}
	all.Wait()
	c.done.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights != 0 || c.resting != 0 || len(c.wake) != 0 || len(c.waiting) != 0 {
		t.Errorf("%d callers: %d flights, %d of them resting, %d to be woken, %d calls waiting",
			crowd, c.flights, c.resting, len(c.wake), len(c.waiting))
	}
}
