package store

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// groupOf returns the key of the group that a job with a record that begins so is of, or "". It begins with 's' for a serial group, and with
// 'g' for another.
func groupOf(head string) string {
	const at = 22 // of the key's length
	if len(head) <= at || head[0] < 1 || head[0] > 31 || head[3]%2 == 0 {
		return ""
	}
	size := int(head[at])
	return head[at+1 : min(at+1+size, len(head))]
}

// validateGroupOf returns an error that wraps signalbox.ErrInvalid if the record's flags say that the job is of a group, and it has no key that one can have.
// Scripts don't look at that again.
func validateGroupOf(record []byte) error {
	const flags = 3
	if len(record) <= flags || record[0] < 1 || record[0] > 31 {
		return nil
	}
	if record[flags]%2 == 0 {
		if record[flags]&wire.FlagExpires != 0 {
			return fmt.Errorf("%w extras: the job expires, and they name no group", signalbox.ErrInvalid)
		}
		return nil
	}
	key := groupOf(string(record))
	if len(key) < 2 || key[0] != 'g' && key[0] != 's' || len(key) != int(record[22]) {
		return fmt.Errorf("%w extras: they name no group", signalbox.ErrInvalid)
	}
	if key == "g"+wire.Unstarted && record[flags]&wire.FlagExpires != 0 {
		return nil
	}
	return layout.ValidateGroup(key[1:])
}

// expiryOf returns when a job with this record expires if it hasn't started by then, in us, or 0 if it never does. It is the function expiry_of of the scripts.
func expiryOf(record string) int64 {
	expires := wire.ExpiresOf([]byte(record)).Microseconds()
	if expires == 0 {
		return 0
	}
	due := int64(binary.BigEndian.Uint64([]byte(record[12:20])))
	if due >= wire.HeldUntil.UnixMicro() {
		return 0
	}
	return min(due+expires, 1<<53-1)
}

// lineOf returns the member of the lines for a job with a record that begins so, or "" if it is of no group.
func lineOf(head, id string) string {
	key := groupOf(head)
	if key == "" {
		return ""
	}
	return fmt.Sprintf("%s%s\x01%016d%s", head[1:2], key, binary.BigEndian.Uint64([]byte(head[12:20])), id)
}

// parseLine returns the parts of a member of the lines.
func parseLine(member string) (class, key, id string, ok bool) {
	line, rest, ok := strings.Cut(member, "\x01")
	if !ok || len(line) < 3 || len(rest) < 17 || line[0] < '0' || line[0] > '2' {
		return "", "", "", false
	}
	return line[:1], line[1:], rest[16:], true
}

// A group is what GROUPS has for one.
type group struct {
	states  string // of its lines, by class: '.' nobody waits, 't' it has a turn, 'b' it is blocked, 'w' it waits for the group's rate
	holders int    // jobs that hold it
}

func parseGroup(value string) (group, bool) {
	if len(value) < 4 || strings.Trim(value[:3], ".tbw") != "" {
		return group{}, false
	}
	n, err := strconv.Atoi(value[3:])
	return group{states: value[:3], holders: n}, err == nil && n >= 0
}

// waits reports whether a line waits for limits.
func (g group) waits() bool { return strings.ContainsAny(g.states, "bw") }
