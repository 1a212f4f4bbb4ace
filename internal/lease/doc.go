// Package lease has the clock of a lease, and contexts that end with the lease. Err of each context reads the clocks,
// or asks its parent, which reads them. So Err is right after a pause of the process and after a suspend of the
// machine.
//
// A [Context] is a child that can be ended by itself. A [Validity] ends by the clock. [Join] returns a context that
// ends with either of two others. [Bound] returns one with a deadline.
//
// Lockers, the worker and middleware use this package. It is not in package lock, because users of locks don't need it.
// It is not in lock/internal, because the worker needs it, and lockers in modules of their own. A locker outside of
// this project can do without it: lock.Lock says how its context must behave, and the tests of lock/locktest have an
// example.
package lease
