// Package scenarios plays four cases in which a lock that rests on time must fail, against
// real processes and servers: five redis-servers as the nodes of a Redlock, clients that are
// processes of their own, and two resources that they write to. One of those checks
// fencing tokens, the other doesn't. The cases are those of M. Kleppmann, "How to do distributed
// locking" (2016): clocks that jump, a node that forgets, a client that is paused, and packets that
// are late.
//
// [Run] plays them. Where exclusion must be violated it has to be seen to be violated, by a
// second holder or by the resource that doesn't check; else the case has shown nothing, and
// fails. Tokens must be unique and in real-time order in all of them, and the resource
// that checks them must stay correct.
//
// The arrangement is by signals, held packets and conditions that are waited for. What happens within
// a TTL all the same needs a machine that is quick enough; where it was not, the case is
// played again from the start, at most three times.
//
// The processes are this program again, so main or TestMain must call [ChildMain] first. It needs
// Linux, redis-server and a C compiler, which builds the shim by which a server's clock is moved.
package scenarios
