package spec

import (
	"fmt"
	"strings"
)

// The endings of the keys beside a lock.
const (
	FenceSuffix = ":fence"
	WaitSuffix  = FenceSuffix + ":wait"
)

// FenceKey returns the key of a lock's record, which has the token counter. It is key:fence if the key has a hash tag,
// else key{key}:fence. So it is in the lock's slot, as Redis Cluster needs it, and has the lock's prefix, as an ACL
// may need it. No two keys share one. FenceKey refuses keys that can't have one, and those that could be a key beside
// another lock.
func FenceKey(key string) (string, error) {
	switch {
	case key == "":
		return "", fmt.Errorf("%w: the key is empty", ErrInvalid)
	case strings.HasSuffix(key, FenceSuffix), strings.HasSuffix(key, WaitSuffix):
		return "", fmt.Errorf("%w: key %.200q ends as the token counters (%q) and waiting lines (%q) do", ErrInvalid, key, FenceSuffix, WaitSuffix)
	case isTwice(key):
		return "", fmt.Errorf("%w: key %.200q is one key twice, the second time as hash tag, as in the names of what is beside that one", ErrInvalid, key)
	case hasHashTag(key):
		return key + FenceSuffix, nil
	case strings.ContainsAny(key, "{}"):
		return "", fmt.Errorf("%w: key %.200q has a { or a } but no hash tag such as {tag}", ErrInvalid, key)
	}
	return key + "{" + key + "}" + FenceSuffix, nil
}

// isTwice reports whether a key is x{x} for some x.
func isTwice(key string) bool {
	x, rest, found := strings.Cut(key, "{")
	return found && x != "" && rest == x+"}"
}

// WaitKey returns the key of a lock's queue of waiters.
func WaitKey(fence string) string { return strings.TrimSuffix(fence, FenceSuffix) + WaitSuffix }

// hasHashTag reports whether a key has a hash tag as Redis Cluster defines it: what is between the first { and
// the first } after it, if that is not empty.
func hasHashTag(key string) bool {
	_, rest, found := strings.Cut(key, "{")
	return found && strings.Index(rest, "}") > 0
}
