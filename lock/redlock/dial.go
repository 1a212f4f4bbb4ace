package redlock

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialer returns a function that makes connections as the node's options say. It ends with the Locker.
//
// The function never fails. If it can't connect, it returns a connection that fails when it is used. With an
// error go-redis would behave worse: after as many failures as its pool is large, it would answer
// for a second with the last error, and log each.
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

// noConn is a connection that could not be made. All calls return err.
type noConn struct{ err error }

func (c noConn) Read([]byte) (int, error)       { return 0, c.err }
func (c noConn) Write([]byte) (int, error)      { return 0, c.err }
func (noConn) Close() error                     { return nil }
func (noConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (noConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (noConn) SetDeadline(time.Time) error      { return nil }
func (noConn) SetReadDeadline(time.Time) error  { return nil }
func (noConn) SetWriteDeadline(time.Time) error { return nil }
