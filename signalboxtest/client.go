package signalboxtest

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/signalbox-go/signalbox/internal/store"
)

// newClient returns a client whose commands are answered by the stand-in.
func newClient(s *store.StandIn) *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: "signalboxtest.invalid:6379", MaxRetries: -1, PoolSize: 1, Dialer: noDial, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // it would look the address up
	})
	rdb.AddHook(hook{s})
	return rdb
}

var errNoServer = errors.New("signalboxtest: this client has no server")

func noDial(context.Context, string, string) (net.Conn, error) { return nil, errNoServer }

// A hook answers commands in the place of a server.
type hook struct{ *store.StandIn }

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(redis.ProcessHook) redis.ProcessHook { return h.Process }

func (h hook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var first error
		for _, cmd := range cmds {
			if err := h.Process(ctx, cmd); err != nil && first == nil {
				first = err
			}
		}
		return first
	}
}
