package inspect

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/server"
)

// NotKnown is a number of a [Server] that the server doesn't say.
const NotKnown = -1

// A Server is what a server of Redis says of itself. What it doesn't say is [NotKnown] if it is a number or a duration, "" if it is a text, and zero if it is a time.
type Server struct {
	// Addr is where the client reaches the server: host and port, or the path of a socket. It is "" behind Sentinel.
	Addr string
	// Took is how long the server took to answer, as the client saw it, with the way.
	Took time.Duration
	// Name is the server's name, such as "valkey" or "signalbox-embedded". A Redis up to 7 doesn't say it.
	Name string
	// Version is its version. Valkey has one of its own.
	Version string
	// Mode is "standalone", "sentinel" or "cluster".
	Mode string
	// Role is "master" or "slave", as Redis calls a replica.
	Role string
	// Uptime is for how long it has been running, in whole seconds.
	Uptime time.Duration

	// Memory is how many bytes it has allocated, MemoryPeak the most that it had since it started, and MemoryResident what the system counts for it.
	Memory, MemoryPeak, MemoryResident int64
	// MaxMemory is how many bytes it may allocate. 0: there is no limit.
	MaxMemory int64
	// Policy is its maxmemory-policy: what it does at MaxMemory. Signalbox wants "noeviction".
	Policy string
	// EvictedKeys is how many keys it has evicted since it started.
	EvictedKeys int64

	// AOF is "on" or "off": whether it appends what it is told to a file. AOFStatus is "ok" or "err": how the last write to it went.
	AOF, AOFStatus string
	// LastSave is when it last saved all data to its RDB file, by its clock. It is zero as well if it hasn't since it started: see Saves.
	LastSave time.Time
	// Saves is how often it has saved since it started.
	Saves int64
	// SaveStatus is "ok" or "err": how the last save since it started went. SaveTook is how long it took, in whole seconds.
	SaveStatus string
	SaveTook   time.Duration
	// Unsaved is how many changes it has made since its last save.
	Unsaved int64

	// Clients is how many clients are connected, without replicas, and BlockedClients how many of them wait in a call that blocks. MaxClients is how many it lets in.
	Clients, BlockedClients, MaxClients int64
	// RejectedClients is how many it has turned away since it started, since there were MaxClients.
	RejectedClients int64
	// CallsPerSecond is how many commands it runs a second now.
	CallsPerSecond int64

	// Replicas are those that are connected. ReplicasKnown says whether the server says how many there are: if not, Replicas is nil.
	Replicas      []Replica
	ReplicasKnown bool
	// MasterLink is "up" or "down" on a replica: its connection to its master.
	MasterLink string

	// Wrong says in words why the server would lose jobs, and Doubts what else isn't as it should be, such as a policy that evicts.
	Wrong, Doubts []string
}

// A Replica is one of a server, as its master says.
type Replica struct {
	// Addr is its host and port.
	Addr string
	// State is "online" if it gets all changes.
	State string
	// Behind is how many bytes of changes it hasn't acknowledged, or [NotKnown].
	Behind int64
	// Lag is how long ago it last acknowledged some, in whole seconds, or [NotKnown].
	Lag time.Duration
}

// Servers returns what the servers say of themselves: the one that the client is connected to, or each master of a Cluster, sorted by address. It is one call of INFO each.
// The error wraps [ErrNotKnown] if a server denies it. In a Cluster it comes with what the other servers say, and wraps [ErrPartial] then.
func (i *Inspector) Servers(ctx context.Context) ([]Server, error) {
	infos, err := server.Infos(ctx, i.rdb)
	servers := make([]Server, len(infos))
	for n := range infos {
		servers[n] = serverOf(&infos[n])
	}
	if err != nil {
		err = notKnown("the servers", err)
		if len(servers) > 0 {
			err = partial(err)
		}
	}
	return servers, err
}

// serverOf reads what a server says.
func serverOf(info *server.Info) Server {
	f := info.Fields
	number := func(name string) int64 {
		n, err := strconv.ParseInt(f[name], 10, 64)
		if err != nil || n < 0 {
			return NotKnown
		}
		return n
	}
	seconds := func(name string) time.Duration {
		if n := number(name); n >= 0 {
			return time.Duration(n) * time.Second
		}
		return NotKnown
	}
	s := Server{
		Addr: info.Addr, Took: info.Took, Name: f["server_name"], Version: cmp.Or(f["valkey_version"], f["redis_version"]), Mode: cmp.Or(f["redis_mode"], f["server_mode"]), Role: f["role"], Uptime: seconds("uptime_in_seconds"),
		Memory: number("used_memory"), MemoryPeak: number("used_memory_peak"), MemoryResident: number("used_memory_rss"), MaxMemory: number("maxmemory"), Policy: f["maxmemory_policy"], EvictedKeys: number("evicted_keys"),
		AOFStatus: f["aof_last_write_status"], Saves: number("rdb_saves"), SaveStatus: f["rdb_last_bgsave_status"], SaveTook: seconds("rdb_last_bgsave_time_sec"), Unsaved: number("rdb_changes_since_last_save"),
		Clients: number("connected_clients"), BlockedClients: number("blocked_clients"), MaxClients: number("maxclients"), RejectedClients: number("rejected_connections"), CallsPerSecond: number("instantaneous_ops_per_sec"),
		MasterLink: f["master_link_status"], Wrong: info.Wrong, Doubts: info.Doubts,
	}
	switch f["aof_enabled"] {
	case "1":
		s.AOF = "on"
	case "0":
		s.AOF, s.AOFStatus = "off", ""
	}
	if s.Saves > 0 { // before the first one Redis gives the time when it started
		if at := number("rdb_last_save_time"); at > 0 {
			s.LastSave = time.Unix(at, 0)
		}
	} else if s.SaveStatus == "ok" { // that of no save
		s.SaveStatus = ""
	}
	count := number("connected_slaves")
	s.ReplicasKnown = count >= 0
	for n := range max(count, 0) {
		if text := f[fmt.Sprintf("slave%d", n)]; text != "" {
			s.Replicas = append(s.Replicas, replicaOf(text, number("master_repl_offset")))
		}
	}
	return s
}

// replicaOf reads a line of INFO about a replica, such as "ip=10.0.0.2,port=6379,state=online,offset=700,lag=1". offset is that of its master, or NotKnown.
func replicaOf(text string, offset int64) Replica {
	fields := make(map[string]string)
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	r := Replica{State: fields["state"], Behind: NotKnown, Lag: NotKnown}
	if fields["ip"] != "" {
		r.Addr = net.JoinHostPort(fields["ip"], fields["port"])
	}
	if at, err := strconv.ParseInt(fields["offset"], 10, 64); err == nil && offset >= 0 {
		r.Behind = max(0, offset-at)
	}
	if lag, err := strconv.ParseInt(fields["lag"], 10, 64); err == nil && lag >= 0 {
		r.Lag = time.Duration(lag) * time.Second
	}
	return r
}
