package parcelseam

import (
	"strconv"
	"strings"

	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// The shards of a queue. The first ones are for jobs without an order, the others for jobs whose order is that of their transactions. A change of these
// numbers needs a new version of the tables.
const (
	Loose  = 4
	Strict = 4
)

// ShardName returns the name of a shard, as the tables of an outbox have it. Its number is from 0 to Loose+Strict-1.
func ShardName(namespace, queue string, number int) string {
	if namespace == "" {
		namespace = layout.DefaultNamespace
	}
	return namespace + ":" + queue + "/" + strconv.Itoa(number)
}

// ParseShard returns what the name of a shard says. ok is false if it is none.
func ParseShard(name string) (namespace, queue string, number int, ok bool) {
	namespace, rest, _ := strings.Cut(name, ":")
	i := strings.LastIndexByte(rest, '/')
	if i < 0 {
		return "", "", 0, false
	}
	queue = rest[:i]
	number, err := strconv.Atoi(rest[i+1:])
	ok = err == nil && layout.ValidateNamespace(namespace) == nil && layout.ValidateQueue(queue) == nil && ShardName(namespace, queue, number) == name
	return namespace, queue, number, ok
}

// IsStrict reports whether the rows of a shard have an order. Only these have a sequence: their places in the table are drawn under the lock of their group.
func IsStrict(number int) bool { return number >= Loose }
