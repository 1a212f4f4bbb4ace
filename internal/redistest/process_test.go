package redistest

import (
	"net"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// The next port is tried only if the message for a taken port is recognised.
func TestPortIsTaken(t *testing.T) {
	t.Parallel()
	path := needReal(t)
	p := &process{path: path, dir: t.TempDir(), port: servertest.ReservePort()}
	defer p.port.Release()
	defer p.port.First.Close()
	if err := p.start(); err == nil || !strings.Contains(err.Error(), portTaken) {
		t.Errorf("start on a taken port: %v", err)
	}
}

// If another server answers on the port, ready returns false.
func TestReadyKnowsItsProcess(t *testing.T) {
	t.Parallel()
	s := New(t)
	other := &process{path: needReal(t), dir: t.TempDir(), port: s.process.port}
	if err := other.start(); err == nil {
		other.kill()
		t.Error("started on the port of another server")
	}
}

// The port of a server that was killed, or of a proxy that refuses connections, is not
// given away.
func TestPortsAreKept(t *testing.T) {
	t.Parallel()
	s := New(t)
	proxy := NewProxy(t, s.Addr())
	proxy.Refuse(true)
	s.Kill()
	for name, addr := range map[string]string{"server": s.Addr(), "proxy": proxy.addr} {
		if mark, err := net.ListenPacket("udp", addr); err == nil {
			mark.Close()
			t.Errorf("another could reserve the %s's port", name)
		}
	}
	p := servertest.ReservePort()
	p.First.Close()
	p.Release()
	Eventually(t, func() bool {
		mark, err := net.ListenPacket("udp", p.Addr())
		if err != nil {
			return false
		}
		mark.Close()
		return true
	}, "a port that was released can be reserved")
}

func TestBinary(t *testing.T) {
	t.Setenv(Env, "")
	if _, err := binary(); err != nil {
		t.Errorf("unset: %v", err)
	}
	t.Setenv(Env, "embedded")
	if path, err := binary(); path != "" || err != nil {
		t.Errorf("embedded: %q, %v", path, err)
	}
	t.Setenv(Env, "yes")
	if _, err := binary(); err == nil {
		t.Error("a value that means nothing was accepted")
	}
	t.Setenv("PATH", "")
	t.Setenv(Env, "")
	if path, err := binary(); path != "" || err != nil {
		t.Errorf("unset without a redis-server: %q, %v", path, err)
	}
	t.Setenv(Env, "required")
	if _, err := binary(); err == nil {
		t.Error("required without a redis-server: no error")
	}
}
