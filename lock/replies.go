package lock

import (
	"fmt"
	"strconv"
	"time"
)

// unexpected is a reply that our scripts don't give: somebody between us and Redis does.
func unexpected(reply any) error {
	return fmt.Errorf("unexpected reply of Redis: %.100s", fmt.Sprint(reply))
}

// numbers reads fields that are integers.
func numbers(fields []any, into ...*int64) bool {
	if len(fields) != len(into) {
		return false
	}
	for i, f := range fields {
		n, ok := f.(int64)
		if !ok {
			return false
		}
		*into[i] = n
	}
	return true
}

// parseToken reads a token, which is at least 1.
func parseToken(field any) (int64, bool) {
	text, _ := field.(string)
	token, err := strconv.ParseInt(text, 10, 64)
	return token, err == nil && token > 0
}

// parseGrant reads a reply of acquire.lua for n locks: the token, or 0 and who is in the way.
func parseGrant(reply any, n int) (token int64, held refusal, err error) {
	fields, _ := reply.([]any)
	if len(fields) == 2 && fields[0] == int64(1) {
		if token, ok := parseToken(fields[1]); ok {
			return token, refusal{}, nil
		}
	}
	var status, key, ms, ours, at int64
	if numbers(fields, &status, &key, &ms, &ours, &at) && status == 0 && key >= 1 && key <= int64(n) {
		return 0, refusal{key: int(key - 1), for_: time.Duration(ms) * time.Millisecond, ours: ours == 1, at: at}, nil
	}
	return 0, refusal{}, unexpected(reply)
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
	return unexpected(reply)
}

// A gift is what became of a lock that was given up.
type gift struct {
	token int64         // granted to the next of this process; 0: it was not
	pause time.Duration // else how long that one should let others be first
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
	case numbers(fields, &status, &ms) && status == 1:
		return gift{pause: time.Duration(ms) * time.Millisecond}, nil
	case numbers(fields, &status) && status == 0:
		return gift{}, ErrExpired
	case numbers(fields, &status) && status == -1:
		return gift{}, ErrTaken
	}
	return gift{}, unexpected(reply)
}

// parseInfo reads a reply of inspect.lua.
func parseInfo(reply any, info *Info) error {
	fields, _ := reply.([]any)
	var held, ms int64
	if len(fields) != 4 || !numbers(fields[:2], &held, &ms) {
		return unexpected(reply)
	}
	text, _ := fields[2].(string)
	token, err := strconv.ParseInt(text, 10, 64)
	owner, ok := fields[3].(string)
	if err != nil || !ok {
		return unexpected(reply)
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
