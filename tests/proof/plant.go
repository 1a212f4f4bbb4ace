package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A plant is a violation that is put into a copy of a history, to test that the checks find it.
type plant struct {
	name  string
	put   func(ops []operation) ([]operation, bool) // in the operations of one key
	found func(v verdict) bool
}

var plants = []plant{
	{"a double grant", plantDoubleGrant, func(v verdict) bool { return v.duplicates > 0 && v.illegal > 0 }},
	{"tokens out of order", plantDisorder, func(v verdict) bool { return v.order > 0 && v.illegal > 0 }},
	{"two holders", plantOverlap, func(v verdict) bool { return v.overlaps > 0 && v.illegal > 0 }},
}

// findPlanted puts each violation into a copy of a correct key's history. It returns an error unless
// the checks find each of them.
func findPlanted(ops []operation, losses []loss, patience time.Duration) (names []string, err error) {
	byKey := map[string][]operation{}
	for _, o := range ops {
		byKey[o.key] = append(byKey[o.key], o)
	}
	var keys []string
	for key, ops := range byKey {
		// Near a loss of memory a violation may be permitted, and so not be found.
		if len(ops) >= 20 && !slices.ContainsFunc(losses, func(l loss) bool { return touches(l, ops) }) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, p := range plants {
		found := errors.New("the history has no key in which it could be")
		for _, key := range keys {
			planted, ok := p.put(slices.Clone(byKey[key]))
			if !ok || checkModel(byKey[key], losses, patience) != porcupine.Ok {
				continue
			}
			if found = nil; !p.found(check(planted, losses, patience)) {
				found = errors.New("the checks don't see it: they are blind")
			}
			break
		}
		if found != nil {
			err = errors.Join(err, fmt.Errorf("planted %s: %w", p.name, found))
		}
		names = append(names, p.name)
	}
	return names, err
}

// touches reports whether the loss overlaps the operations on a key.
func touches(l loss, ops []operation) bool {
	for _, o := range ops {
		end := max(o.until, o.call)
		if o.back != never {
			end = max(end, o.back)
		}
		if l.until >= o.call && l.from <= end {
			return true
		}
	}
	return false
}

// plantDoubleGrant gives a second client the same grant as a first one, at the same time.
func plantDoubleGrant(ops []operation) ([]operation, bool) {
	i := slices.IndexFunc(ops, func(o operation) bool { return o.do == acquire && o.result == done })
	if i < 0 {
		return nil, false
	}
	second := ops[i]
	second.process = otherProcess(ops)
	return append(ops, second), true
}

// plantDisorder swaps the tokens of two grants. One of the two was over before the other began.
func plantDisorder(ops []operation) ([]operation, bool) {
	for i, a := range ops {
		for j, b := range ops {
			if a.do == acquire && b.do == acquire && a.result == done && b.result == done && a.back < b.call {
				ops[i].token, ops[j].token = b.token, a.token
				return ops, true
			}
		}
	}
	return nil, false
}

// plantOverlap gives a second client a grant, with a proper token, in the middle of a lease that is
// later released in time.
func plantOverlap(ops []operation) ([]operation, bool) {
	for _, l := range leasesOf(ops) {
		third := (l.until - l.from) / 3
		if l.released == nil || third <= 1 {
			continue
		}
		second := l.grant
		second.process, second.token = otherProcess(ops), l.grant.token+1
		second.call, second.back = l.from+third, l.from+2*third
		second.until = l.until + int64(time.Second)
		return append(ops, second), true
	}
	return nil, false
}

// otherProcess returns the ID of a process that did nothing.
func otherProcess(ops []operation) int64 {
	other := int64(0)
	for _, o := range ops {
		other = max(other, o.process)
	}
	return other + 1
}
