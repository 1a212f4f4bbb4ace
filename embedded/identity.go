package embedded

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// version is the version that miniredis reports in HELLO.
const version = "8.4.0"

// identity answers INFO, CONFIG GET and ROLE. Programs use them to find out what they are
// connected to, and miniredis doesn't have them. The answers are true of this server.
// What isn't known is left out.
type identity struct {
	runID   string
	port    int
	started time.Time
	clients func() int
}

func newIdentity(port int, srv *server.Server) *identity {
	var id [20]byte
	_, _ = rand.Read(id[:]) // never fails
	return &identity{runID: hex.EncodeToString(id[:]), port: port, started: time.Now(), clients: srv.ClientsLen}
}

// install adds the commands. miniredis has an INFO with two other sections. The one here
// answers before miniredis sees the command.
func (id *identity) install(srv *server.Server) error {
	srv.SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if cmd != "INFO" {
			return false
		}
		c.WriteBulk(id.info(args))
		return true
	})
	if err := srv.Register("ROLE", role, server.ReadOnlyOption()); err != nil {
		return err
	}
	return srv.Register("CONFIG", id.config)
}

// info returns the reply to INFO for these sections. Without any it returns all.
func (id *identity) info(wanted []string) string {
	sections := []struct {
		name string
		text string
	}{
		{"server", fmt.Sprintf("server_name:signalbox-embedded\r\nredis_version:%s\r\nredis_mode:standalone\r\nprocess_id:%d\r\nrun_id:%s\r\ntcp_port:%d\r\nuptime_in_seconds:%d\r\n",
			version, os.Getpid(), id.runID, id.port, int(time.Since(id.started).Seconds()))},
		{"clients", fmt.Sprintf("connected_clients:%d\r\n", id.clients())},
		{"memory", "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"},
		{"persistence", "loading:0\r\naof_enabled:0\r\n"},
		{"replication", "role:master\r\nconnected_slaves:0\r\n"},
		{"cluster", "cluster_enabled:0\r\n"},
	}
	var b strings.Builder
	for _, s := range sections {
		if !asked(wanted, s.name) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + strings.ToUpper(s.name[:1]) + s.name[1:] + "\r\n" + s.text)
	}
	return b.String()
}

func asked(wanted []string, section string) bool {
	for _, w := range wanted {
		switch w = strings.ToLower(w); w {
		case section, "all", "default", "everything":
			return true
		}
	}
	return len(wanted) == 0
}

// role answers ROLE: a master without replicas.
func role(c *server.Peer, _ string, _ []string) {
	c.Block(func(w *server.Writer) {
		w.WriteLen(3)
		w.WriteBulk("master")
		w.WriteInt(0)
		w.WriteLen(0)
	})
}

// config answers CONFIG GET. Nothing can be set.
func (id *identity) config(c *server.Peer, _ string, args []string) {
	if len(args) < 2 || !strings.EqualFold(args[0], "GET") {
		c.WriteError("ERR the embedded Redis has CONFIG GET only")
		return
	}
	settings := [][2]string{
		{"appendfsync", "no"},
		{"appendonly", "no"},
		{"cluster-enabled", "no"},
		{"maxmemory", "0"},
		{"maxmemory-policy", "noeviction"},
		{"port", strconv.Itoa(id.port)},
		{"save", ""},
	}
	var found [][2]string
	for _, s := range settings {
		for _, pattern := range args[1:] {
			if ok, err := path.Match(strings.ToLower(pattern), s[0]); ok && err == nil {
				found = append(found, s)
				break
			}
		}
	}
	c.Block(func(w *server.Writer) {
		w.WriteMapLen(len(found))
		for _, s := range found {
			w.WriteBulk(s[0])
			w.WriteBulk(s[1])
		}
	})
}
