package facts

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/signalbox-go/signalbox/internal/wire"
)

// GroupOf returns the key of the group that a job with a record that begins so is of, or "". It begins with 's' for a serial group, and with
// 'g' for another.
func GroupOf(head string) string {
	const at = 22 // of the key's length
	if len(head) <= at || head[0] < 1 || head[0] > 31 || head[3]%2 == 0 {
		return ""
	}
	size := int(head[at])
	return head[at+1 : min(at+1+size, len(head))]
}

// ExpiryOf returns when a job with this record expires if it hasn't started by then, in us, or 0 if it never does. It is the function expiry_of of the scripts.
func ExpiryOf(record string) int64 {
	expires := wire.ExpiresOf([]byte(record)).Microseconds()
	deadline, started := wire.DeadlineOf([]byte(record))
	if expires == 0 && (deadline.IsZero() || started) {
		return 0
	}
	due := int64(binary.BigEndian.Uint64([]byte(record[12:20])))
	switch {
	case due >= wire.HeldUntil.UnixMicro():
		return 0
	case expires == 0:
		return deadline.UnixMicro()
	}
	return min(due+expires, 1<<53-1)
}

// LineOf returns the member of the lines for a job with a record that begins so, or "" if it is of no group.
func LineOf(head, id string) string {
	key := GroupOf(head)
	if key == "" {
		return ""
	}
	return fmt.Sprintf("%s%s\x01%016d%s", head[1:2], key, binary.BigEndian.Uint64([]byte(head[12:20])), id)
}

// ParseLine returns the parts of a member of the lines.
func ParseLine(member string) (class, key, id string, ok bool) {
	line, rest, ok := strings.Cut(member, "\x01")
	if !ok || len(line) < 3 || len(rest) < 17 || line[0] < '0' || line[0] > '2' {
		return "", "", "", false
	}
	return line[:1], line[1:], rest[16:], true
}

// A Group is what GROUPS has for one.
type Group struct {
	States  string // of its lines, by class: '.' nobody waits, 't' it has a turn, 'b' it is blocked, 'w' it waits for the group's rate
	Holders int    // jobs that hold it
}

func ParseGroup(value string) (Group, bool) {
	if len(value) < 4 || strings.Trim(value[:3], ".tbw") != "" {
		return Group{}, false
	}
	n, err := strconv.Atoi(value[3:])
	return Group{States: value[:3], Holders: n}, err == nil && n >= 0
}

// Waits reports whether a line waits for limits.
func (g Group) Waits() bool { return strings.ContainsAny(g.States, "bw") }
