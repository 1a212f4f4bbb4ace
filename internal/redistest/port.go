package redistest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports come from below the range that Linux gives to outgoing connections, so that no
// client can take the port of a server that is being restarted. A cluster node
// also listens on port+10000.
const (
	firstPort = 12000
	lastPort  = 21999
)

// A port is a TCP port of loopback that is ours until it is released, also while nobody listens on
// it: a server that was killed, or a proxy that refuses, must not find that of another test
// in its place. The UDP port of the same number is the mark of it, which all test processes
// look at and which ends with the one that has it.
type port struct {
	number int
	mark   net.PacketConn
	first  net.Listener // for who wants to listen at once, or to close
}

// reservePort finds a port that nobody has and that nobody listens on.
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

// Address returns an address of loopback on which nobody listens. No other test gets it until t has ended.
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
