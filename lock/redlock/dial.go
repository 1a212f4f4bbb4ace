package redlock

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialer makes the connections of a node as its options say, and ends with the Redlock.
//
// It never fails: what it returns then does, when it is used. Else go-redis would answer
// for a second with the error of an earlier failure, once there were as many as its
// pool is large, and log each of them.
func (n *node) dialer(given *redis.Options) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := given.Dialer
	if dial == nil {
		plain := &net.Dialer{KeepAlive: 30 * time.Second}
		dial = plain.DialContext
		if given.TLSConfig != nil {
			dial = (&tls.Dialer{NetDialer: plain, Config: given.TLSConfig}).DialContext
		}
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, n.patience)
		defer cancel()
		defer context.AfterFunc(n.locker.ctx, cancel)()
		conn, err := dial(ctx, network, addr)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.undialed = err
		if err != nil {
			return noConn{err}, nil
		}
		return conn, nil
	}
}

// noConn is a connection that failed.
type noConn struct{ err error }

func (c noConn) Read([]byte) (int, error)       { return 0, c.err }
func (c noConn) Write([]byte) (int, error)      { return 0, c.err }
func (noConn) Close() error                     { return nil }
func (noConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (noConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (noConn) SetDeadline(time.Time) error      { return nil }
func (noConn) SetReadDeadline(time.Time) error  { return nil }
func (noConn) SetWriteDeadline(time.Time) error { return nil }
