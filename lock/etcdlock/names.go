package etcdlock

import (
	"fmt"
	"strings"

	"github.com/signalbox-go/signalbox/lock"
)

const maxKey = 4096

// A lock's queue is all keys of etcd whose names begin with
//
//	<Prefix><the lock's key, encoded>//
//
// The rest of a name is a random value of the lease. So locks on one key that have the same lease, one after the other,
// have the same name; the create revision tells them apart. etcd keeps something of each name until it compacts, and a
// look at a queue takes longer for each. Neither the prefix nor an encoded key has a // inside, and an
// encoded key has no / at all. So no name is in two queues: those of the keys /l/a and /l/a/b have nothing in common.

// queueOf returns what the names of a lock's queue begin with.
func queueOf(prefix, key string) (string, error) {
	switch {
	case key == "":
		return "", fmt.Errorf("%w: the key is empty", lock.ErrInvalid)
	case len(key) > maxKey:
		return "", fmt.Errorf("%w: the key has %d bytes; at most %d are allowed", lock.ErrInvalid, len(key), maxKey)
	}
	return prefix + encode(key) + "//", nil
}

// encode returns a key with each byte as %XX, except for letters, digits and -_.:@ of ASCII.
func encode(key string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.:@", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}
