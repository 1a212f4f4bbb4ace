package zklock

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/lock"
)

// maxKey bounds a key, in bytes: encoded it has up to three times as many, and a client's requests hold some paths.
const maxKey = 4096

// pathOf returns the path of a key's node. A key is one node, whatever it contains: all bytes but letters, digits, "-",
// "_" and "." are encoded as in URLs. So are the dots of a key that has nothing else, since . and .. aren't names.
func pathOf(root, key string) (string, error) {
	if key == "" || len(key) > maxKey {
		return "", fmt.Errorf("%w: a key has 1 to %d bytes; this one has %d", lock.ErrInvalid, maxKey, len(key))
	}
	dots := strings.Trim(key, ".") == ""
	b := make([]byte, 0, len(root)+1+len(key))
	b = append(append(b, root...), '/')
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.' && !dots:
			b = append(b, c)
		default:
			b = fmt.Appendf(b, "%%%02X", c)
		}
	}
	return string(b), nil
}

// The names of a key's children. ID is the random value of one acquire. TTL is in ms, and SEQUENCE is ZooKeeper's.
const (
	leasePrefix = "lease-" // lease-ID-TTL
	markPrefix  = "mark-"  // mark-ID
	queuePrefix = "queue-" // queue-ID-SEQUENCE
	guardName   = "guard"  // beside a lease, whoever holds it: of two grants only one can create it
)

func leaseName(id string, ttl time.Duration) string {
	return leasePrefix + id + "-" + strconv.FormatInt(ttl.Milliseconds(), 10)
}

// A view is a key's node and its children at one moment.
type view struct {
	version int32  // of the key's node: it changes with each grant
	last    int64  // the token of the last grant; 0: none since the node was created
	lease   string // the lease's name; "": the lock is free
	holder  string // the ID of the lease
	ttl     time.Duration
	marked  bool     // the holder's session lives
	guarded bool     // there is the guard
	queue   []waiter // in no order
}

type waiter struct {
	name, id string
	sequence int32
}

// before reports whether w came before o. ZooKeeper's counter is an int32. After the largest some releases go on with the
// smallest. Others, as 3.8, stay at the largest. From then on the names decide among those with the same number, so
// that there is an order, though not that of their coming. A key's node counts anew when it is created again.
func (w waiter) before(o waiter) bool {
	if w.sequence == o.sequence {
		return w.name < o.name
	}
	return w.sequence-o.sequence < 0
}

func parseView(children []string, stat *zk.Stat) (v view, err error) {
	v.version = stat.Version
	if stat.Version != 0 {
		v.last = stat.Mzxid
	}
	marks := map[string]bool{}
	for _, name := range children {
		if name == guardName {
			v.guarded = true
			continue
		}
		if id, ok := strings.CutPrefix(name, markPrefix); ok {
			marks[id] = true
			continue
		}
		id, number, ok := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(name, leasePrefix), queuePrefix), "-")
		n, notNumber := strconv.ParseInt(number, 10, 64)
		switch {
		case !ok || notNumber != nil:
			return view{}, fmt.Errorf("%w: the node of the key has a child %.100q, which is not of this library", lock.ErrInvalid, name)
		case strings.HasPrefix(name, leasePrefix):
			v.lease, v.holder, v.ttl = name, id, time.Duration(n)*time.Millisecond
		case strings.HasPrefix(name, queuePrefix):
			v.queue = append(v.queue, waiter{name, id, int32(n)})
		default:
			return view{}, fmt.Errorf("%w: the node of the key has a child %.100q, which is not of this library", lock.ErrInvalid, name)
		}
	}
	v.marked = marks[v.holder]
	return v, nil
}

// ahead returns the waiter just before the one with this ID. joined is false if that one isn't in the queue.
func (v view) ahead(id string) (own, previous waiter, joined bool) {
	for _, w := range v.queue {
		if w.id == id {
			own, joined = w, true
		}
	}
	for _, w := range v.queue {
		if joined && w.before(own) && (previous.name == "" || previous.before(w)) {
			previous = w
		}
	}
	return own, previous, joined
}
