// Package scenarios plays four cases in which a lock that depends on time must fail. It uses real
// processes and servers: five redis-servers as the nodes of a Redlock, clients in processes of their
// own, and two resources that the clients write to. One resource checks fencing tokens, the other
// doesn't. The cases are those of M. Kleppmann, "How to do distributed locking" (2016): clocks that
// jump, a node that forgets, a client that is paused, and packets that are late.
//
// [Run] plays them. Where exclusion must be violated, the violation must be seen: there is a second
// holder, or the resource without a check has a wrong value. Otherwise the case has proved nothing,
// and fails. In all cases tokens must be unique and in the order of time, and the resource that
// checks them must stay correct.
//
// The cases are arranged by signals, held packets and conditions that are waited for. Some steps must
// still happen within a TTL, which needs a fast enough machine. If the machine was too slow, the case
// is played again from the start, at most three times.
//
// The processes are started from this program. So main or TestMain must call [ChildMain] first. The
// package needs Linux, redis-server and a C compiler, which builds the shim that moves a server's
// clock.
package scenarios
