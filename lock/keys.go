package lock

import (
	"fmt"
	"strings"
)

const (
	fenceSuffix = ":fence"
	waitSuffix  = fenceSuffix + ":wait"
)

// fenceKey is the key of a lock's record, with the token counter. Redis Cluster wants it in
// the slot of the lock, so it has the lock's hash tag, or the whole key as one. It
// refuses keys for which there is none, and those that could be beside another lock.
func fenceKey(key string) (string, error) {
	switch {
	case key == "":
		return "", fmt.Errorf("%w: the key is empty", ErrInvalid)
	case strings.HasSuffix(key, fenceSuffix), strings.HasSuffix(key, waitSuffix):
		return "", fmt.Errorf("%w: key %q ends as the token counters (%q) and waiting lines (%q) do", ErrInvalid, key, fenceSuffix, waitSuffix)
	case hasHashTag(key):
		return key + fenceSuffix, nil
	case strings.Contains(key, "}"):
		return "", fmt.Errorf("%w: key %q has a } but no hash tag such as {tag}", ErrInvalid, key)
	}
	return "{" + key + "}" + fenceSuffix, nil
}

// waitKey is the key of a lock's waiting line.
func waitKey(fence string) string { return strings.TrimSuffix(fence, fenceSuffix) + waitSuffix }

// hasHashTag follows the Redis Cluster specification: what is between the first { and
// the first } after it, if that is not empty.
func hasHashTag(key string) bool {
	_, rest, found := strings.Cut(key, "{")
	return found && strings.Index(rest, "}") > 0
}
