package main

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// The fenced mutex is the lock's behaviour if every operation takes no time. A grant needs a free mutex
// and a larger token than the last. The holder can release the mutex. It can also lose it, by its own
// doing or by the end of its promise: from that moment on the mutex may become free at any time. A
// server that loses its memory frees the mutex. The tokens still grow.
type step int

const (
	stepGrant  step = iota // to this token
	stepMaybe              // a grant without a reply: its token is unknown, and it may not have happened
	stepExtend             // confirmed: the token holds the mutex
	stepFree               // a confirmed release: the token held the mutex
	stepGone               // a confirmed release after a loss of memory: it may have found another's lock
	stepLose               // the mutex becomes free, if the token still holds it
	stepForget             // the mutex becomes free, whatever token holds it
)

type input struct {
	step  step
	token int64
}

// A mutex is the state of the model: the last token granted, and the token that holds the mutex, or 0.
type mutex struct{ last, holder int64 }

func (m mutex) take(in input) (bool, mutex) {
	switch in.step {
	case stepGrant:
		return m.holder == 0 && in.token > m.last, mutex{in.token, in.token}
	case stepMaybe:
		return true, m
	case stepExtend:
		return m.holder == in.token, m
	case stepFree:
		return m.holder == in.token, mutex{m.last, 0}
	case stepLose, stepGone:
		if m.holder == in.token {
			return true, mutex{m.last, 0}
		}
		return m.last >= in.token, m // it was granted, and then freed by a loss of memory
	default:
		return true, mutex{m.last, 0}
	}
}

var fencedMutex = porcupine.Model{
	Init: func() any { return mutex{} },
	Step: func(state, in, _ any) (bool, any) { return state.(mutex).take(in.(input)) },
}

// A loss is a period in which a server lost its memory, and with it the locks.
type loss struct{ from, until int64 }

// modelHistory translates the operations of one key to steps of the model. If the client got no answer,
// the step is left open: it returns after all others.
//
// Refused operations, and extensions that were not confirmed, have no step. That permits no additional
// history: in the model, with or without such an extension, a mutex may be lost only after the promise.
func modelHistory(ops []operation, losses []loss) []porcupine.Operation {
	var history []porcupine.Operation
	add := func(process int64, call, back int64, s step, token int64) {
		history = append(history, porcupine.Operation{ClientId: int(process), Input: input{s, token}, Call: call, Return: back})
	}
	first, last := int64(never), int64(0)
	leases := leasesOf(ops)
	tokens := map[[2]int64]int64{}
	for _, l := range leases {
		tokens[[2]int64{l.grant.process, l.grant.lease}] = l.grant.token
	}
	for _, o := range ops {
		first, last = min(first, o.call), max(last, o.call)
		token := tokens[[2]int64{o.process, o.lease}]
		switch {
		case o.do == acquire && o.result == done:
			add(o.process, o.call, o.back, stepGrant, o.token)
		case o.do == acquire && o.result == open:
			add(o.process, o.call, never, stepMaybe, 0)
		case o.do == extend && o.result == done:
			add(o.process, o.call, o.back, stepExtend, token)
		case o.do == release && o.result == done:
			s := stepFree
			if forgotten(ops, leases, o, losses) {
				s = stepGone
			}
			add(o.process, o.call, o.back, s, token)
		}
		if o.back != never {
			last = max(last, o.back)
		}
	}
	for _, l := range leases {
		if l.released == nil {
			add(l.grant.process, max(l.until, l.grant.call), never, stepLose, l.grant.token)
		}
	}
	for _, l := range losses {
		if l.until >= first && l.from <= last {
			add(0, l.from, l.until, stepForget, 0)
		}
	}
	return history
}

// forgotten reports whether a release may say that all is well though it found another's lock: the server lost its memory after the grant, and another asked
// for the lock after that. If the reply to a release was late, the release was sent twice. Then the answer that another has the lock may be to the second
// copy, and the first one may have released it, as it would be without the loss. If nobody else has asked for the lock, it is only gone. Then a
// release says that it is lost, also the second copy.
func forgotten(ops []operation, leases []lease, release operation, losses []loss) bool {
	return slices.ContainsFunc(leases, func(l lease) bool {
		return l.grant.process == release.process && l.grant.lease == release.lease && slices.ContainsFunc(losses, func(lost loss) bool {
			return lost.until >= l.grant.call && lost.from <= release.back && slices.ContainsFunc(ops, func(o operation) bool {
				other := o.do == acquire && (o.process != release.process || o.lease != release.lease)
				return other && o.call <= release.back && (o.back == never || o.back+int64(ttl) >= lost.from) // it may be run later than its client waits
			})
		})
	})
}

// checkModel checks the history of one key with porcupine.
func checkModel(ops []operation, losses []loss, patience time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(fencedMutex, modelHistory(ops, losses), patience)
}
