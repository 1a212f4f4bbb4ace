package servertest

import (
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are below the range that Linux uses for outgoing connections. So no client can take the port of a
// server that is being restarted. A cluster node also listens on port+10000.
const (
	firstPort = 12000
	lastPort  = 21999
)

// A Port is a TCP port of loopback that belongs to this process until it is released, even while nothing
// listens on it: if a server was killed or a proxy refuses connections, another test must not get the
// port. To reserve it, the process binds the UDP port with the same number. All test processes check that,
// and the kernel releases it when the process ends.
type Port struct {
	Number int
	First  net.Listener // to listen on at once, or to close
	mark   net.PacketConn
}

// ReservePort reserves a port that is free and on which nothing listens.
func ReservePort() *Port {
	for {
		n := firstPort + rand.IntN(lastPort-firstPort+1)
		mark, err := net.ListenPacket("udp", loopback(n))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", loopback(n))
		if err == nil {
			return &Port{n, l, mark}
		}
		mark.Close()
	}
}

// Addr returns the address as host:port.
func (p *Port) Addr() string { return loopback(p.Number) }

// Release gives the port up.
func (p *Port) Release() { p.mark.Close() }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
