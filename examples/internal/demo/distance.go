package demo

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// distance is how much longer each call to Redis takes than on loopback, where it takes some 50 µs.
// It stands for a network between machines. It is the same for all calls and all locks. Locks that
// only work if they are quick fail most often.
const distance = 5 * time.Millisecond

// FarAway delays the calls of a client to Redis by 5 ms. It changes opt and returns it.
func FarAway(opt *redis.Options) *redis.Options {
	dial := redis.NewDialer(opt)
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return distantConn{conn}, nil
	}
	return opt
}

type distantConn struct{ net.Conn }

func (c distantConn) Write(b []byte) (int, error) {
	time.Sleep(distance)
	return c.Conn.Write(b)
}
