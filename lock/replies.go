package lock

import (
	"strconv"
	"time"

	"github.com/signalbox-go/signalbox/lock/internal/lua"
)

// parseToken reads a token, which is at least 1.
func parseToken(field any) (int64, bool) {
	text, _ := field.(string)
	token, err := strconv.ParseInt(text, 10, 64)
	return token, err == nil && token > 0
}

// A granting is a reply of acquire.lua.
type granting struct {
	token   int64   // 0: the lock was not granted
	refusal refusal // if it was not granted: how it is held
	late    bool    // the call came too late: it granted nothing
	now     int64   // the server's clock, µs
}

// parseGrant reads a reply of acquire.lua for n locks.
func parseGrant(reply any, n int) (granting, error) {
	fields, _ := reply.([]any)
	if (len(fields) == 2 || len(fields) == 3) && fields[0] == int64(1) {
		if token, ok := parseToken(fields[1]); ok {
			g := granting{token: token, now: token}
			if len(fields) == 2 || lua.Numbers(fields[2:], &g.now) {
				return g, nil
			}
		}
	}
	var status, key, ms, ours, at, now int64
	if lua.Numbers(fields, &status, &now) && status == -1 {
		return granting{late: true, now: now}, nil
	}
	if lua.Numbers(fields, &status, &key, &ms, &ours, &at, &now) && status == 0 && key >= 1 && key <= int64(n) {
		refused := refusal{key: int(key - 1), for_: time.Duration(ms) * time.Millisecond, ours: ours == 1, at: at}
		return granting{refusal: refused, now: now}, nil
	}
	return granting{}, lua.Unexpected(reply)
}

// parseExtended reads a reply of extend.lua.
func parseExtended(reply any) error {
	switch reply {
	case int64(1):
		return nil
	case int64(0):
		return ErrExpired
	case int64(-1):
		return ErrTaken
	}
	return lua.Unexpected(reply)
}

// A gift says what became of a lock that was given up.
type gift struct {
	token int64         // of the grant to this process's next waiter; 0: there was no grant
	pause time.Duration // without a grant: how long this process should let others go first
}

// parseReleased reads a reply of release.lua.
func parseReleased(reply any) (gift, error) {
	fields, _ := reply.([]any)
	var status, ms int64
	switch {
	case len(fields) == 2 && fields[0] == int64(2):
		if token, ok := parseToken(fields[1]); ok {
			return gift{token: token}, nil
		}
	case lua.Numbers(fields, &status, &ms) && status == 1:
		return gift{pause: time.Duration(ms) * time.Millisecond}, nil
	case lua.Numbers(fields, &status) && status == 0:
		return gift{}, ErrExpired
	case lua.Numbers(fields, &status) && status == -1:
		return gift{}, ErrTaken
	}
	return gift{}, lua.Unexpected(reply)
}

// parseInfo reads a reply of inspect.lua.
func parseInfo(reply any, info *Info) error {
	fields, _ := reply.([]any)
	var held, ms int64
	if len(fields) != 4 || !lua.Numbers(fields[:2], &held, &ms) {
		return lua.Unexpected(reply)
	}
	text, _ := fields[2].(string)
	token, err := strconv.ParseInt(text, 10, 64)
	owner, ok := fields[3].(string)
	if err != nil || !ok {
		return lua.Unexpected(reply)
	}
	info.Held, info.Token = held == 1, token
	if info.Held {
		info.For = time.Duration(ms) * time.Millisecond
		info.Owner = owner
		if owner != "" {
			info.Since = time.UnixMicro(token)
		}
	}
	return nil
}
