package main

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	// maxKeyOperations bounds the operations that porcupine gets at once.
	maxKeyOperations = 400
	// maxExamples bounds how many violations of each kind are printed.
	maxExamples = 5
)

// A verdict has the results of the checks of a history.
type verdict struct {
	keys, operations, acquisitions int
	most                           int // operations on one key

	duplicates int // tokens granted twice on a key
	order      int // grants that returned before another one's call, with a larger token than that one
	overlaps   int // pairs of leases that were promised at the same time
	expected   int // such pairs with a loss of the only server's memory between them; not in overlaps
	illegal    int // keys whose history is not one of a fenced mutex
	unknown    int // keys for which porcupine ran out of time
	large      int // keys with too many operations

	examples []string
}

// ok reports whether all checks passed.
func (v *verdict) ok() bool {
	return v.duplicates+v.order+v.overlaps+v.illegal+v.unknown+v.large == 0
}

func (v *verdict) example(n *int, format string, args ...any) {
	if *n++; *n <= maxExamples {
		v.examples = append(v.examples, fmt.Sprintf(format, args...))
	}
}

// check checks a history. losses are the periods in which the memory of the only server was lost.
// With several servers there are none, since the lock must survive that.
func check(ops []operation, losses []loss, patience time.Duration) verdict {
	byKey := map[string][]operation{}
	for _, o := range ops {
		byKey[o.key] = append(byKey[o.key], o)
	}
	v := verdict{keys: len(byKey), operations: len(ops)}
	keys := make([]string, 0, len(byKey))
	for key, ops := range byKey {
		keys = append(keys, key)
		v.checkTokens(key, ops)
		v.checkLeases(key, ops, losses)
		v.most = max(v.most, len(ops))
		if len(ops) > maxKeyOperations {
			v.example(&v.large, "%s: %d operations; at most %d were to be done", key, len(ops), maxKeyOperations)
		}
	}
	slices.Sort(keys)
	for i, result := range checkKeys(keys, byKey, losses, patience) {
		switch result {
		case porcupine.Illegal:
			v.example(&v.illegal, "%s: no history of a fenced mutex:%s", keys[i], listing(byKey[keys[i]]))
		case porcupine.Unknown:
			v.example(&v.unknown, "%s: porcupine found nothing within %v", keys[i], patience)
		}
	}
	return v
}

// checkKeys checks all keys with porcupine, on all cores.
func checkKeys(keys []string, byKey map[string][]operation, losses []loss, patience time.Duration) []porcupine.CheckResult {
	results := make([]porcupine.CheckResult, len(keys))
	next := make(chan int)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := range next {
				results[i] = checkModel(byKey[keys[i]], losses, patience)
			}
		})
	}
	for i := range keys {
		next <- i
	}
	close(next)
	all.Wait()
	return results
}

// checkTokens searches for tokens that were granted twice, or not in the order of time.
func (v *verdict) checkTokens(key string, ops []operation) {
	var grants []operation
	seen := map[int64]bool{}
	for _, o := range ops {
		if o.do != acquire || o.result != done {
			continue
		}
		v.acquisitions++
		if seen[o.token] {
			v.example(&v.duplicates, "%s: token %d was granted twice", key, o.token)
		}
		seen[o.token] = true
		grants = append(grants, o)
	}
	byReturn := slices.Clone(grants)
	slices.SortFunc(byReturn, func(a, b operation) int { return cmp.Compare(a.back, b.back) })
	slices.SortFunc(grants, func(a, b operation) int { return cmp.Compare(a.call, b.call) })
	most := int64(0) // largest token that was returned before the call
	for _, o := range grants {
		for len(byReturn) > 0 && byReturn[0].back < o.call {
			most = max(most, byReturn[0].token)
			byReturn = byReturn[1:]
		}
		if o.token < most {
			v.example(&v.order, "%s: token %d was granted after %d", key, o.token, most)
		}
	}
}

// checkLeases searches for leases that were promised at the same time.
func (v *verdict) checkLeases(key string, ops []operation, losses []loss) {
	leases := leasesOf(ops)
	for i, a := range leases {
		for _, b := range leases[i+1:] { // begins after a
			if b.from >= a.until || b.until <= b.from {
				continue
			}
			if lostBetween(a, b, losses) {
				v.expected++
				continue
			}
			v.example(&v.overlaps, "%s: token %d was held for %v more when %d was granted", key,
				a.grant.token, time.Duration(a.until-b.from), b.grant.token)
		}
	}
}

// lostBetween reports whether the memory may have been lost between the two grants. Then the second
// grant was right, as the server could not know the first one.
func lostBetween(a, b lease, losses []loss) bool {
	return slices.ContainsFunc(losses, func(l loss) bool {
		return l.until >= a.asked() && l.from <= b.from || l.until >= b.asked() && l.from <= a.from
	})
}

// listing describes the operations on a key, in the order of their calls.
func listing(ops []operation) string {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b operation) int { return cmp.Compare(a.call, b.call) })
	text := ""
	for _, o := range ops {
		back := "open"
		if o.back != never {
			back = time.Duration(o.back - ops[0].call).String()
		}
		text += fmt.Sprintf("\n    process %d lease %d: %s %s..%s %s", o.process, o.lease, o.do, time.Duration(o.call-ops[0].call), back, cmp.Or(o.result, "open"))
		if o.err != "" {
			text += " (" + o.err + ")"
		}
		if o.token != 0 {
			text += fmt.Sprintf(" token %d until %s", o.token, time.Duration(o.until-ops[0].call))
		}
	}
	return text
}
