package redistest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports are below the range that Linux uses for outgoing connections. So no client can take the port of a
// server that is being restarted. A cluster node also listens on port+10000.
const (
	firstPort = 12000
	lastPort  = 21999
)

// A port is a TCP port of loopback that belongs to this test until it is released, even while nothing
// listens on it: if a server was killed or a proxy refuses connections, another test must not get the
// port. To reserve it, the process binds the UDP port with the same number. All test processes check that,
// and the kernel releases it when the process ends.
type port struct {
	number int
	mark   net.PacketConn
	first  net.Listener // to listen on at once, or to close
}

// reservePort reserves a port that is free and on which nothing listens.
func reservePort() *port {
	for {
		n := firstPort + rand.IntN(lastPort-firstPort+1)
		mark, err := net.ListenPacket("udp", loopback(n))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", loopback(n))
		if err == nil {
			return &port{n, mark, l}
		}
		mark.Close()
	}
}

// Address returns an address of loopback on which nothing listens. No other test gets it until t has
// ended.
func Address(t testing.TB) string {
	t.Helper()
	p := reservePort()
	p.first.Close()
	t.Cleanup(p.release)
	return p.addr()
}

func (p *port) addr() string { return loopback(p.number) }
func (p *port) release()     { p.mark.Close() }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
