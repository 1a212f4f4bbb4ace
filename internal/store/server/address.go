package server

import (
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Address returns where a client looks for Redis. That is the host and port of its server, or of a Cluster's first seed. For a socket
// it is the path, with port 0. It is "" if the address is not known, as for a client of Sentinel, whose master can change. It never
// holds a user or a password.
func Address(rdb redis.UniversalClient) (host string, port int) {
	if IsNil(rdb) {
		return "", 0
	}
	var addr string
	switch c := rdb.(type) {
	case *redis.Client:
		o := c.Options()
		if o.Network == "unix" {
			return o.Addr, 0
		}
		addr = o.Addr
	case *redis.ClusterClient:
		if seeds := c.Options().Addrs; len(seeds) > 0 {
			addr = seeds[0]
		}
	}
	host, digits, err := net.SplitHostPort(addr)
	if err != nil || strings.Contains(host, "@") { // a name such as "FailoverClient", or a URL given by mistake
		return "", 0
	}
	port, err = strconv.Atoi(digits)
	if err != nil {
		return "", 0
	}
	return host, port
}
