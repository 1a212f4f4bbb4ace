// Package lease has the clock of a lease, and the contexts that end with it. The Err of each reads the clocks, or asks the
// context above it, which does. So it is right after a pause of the process, and after a suspend of the machine.
//
// A [Context] is a child that can be ended by itself. A [Validity] ends one by the clock, [Join] with another context and
// [Bound] at a deadline.
//
// Lockers, the worker and middleware use it. It is not in package lock, since users of locks don't need it. It is
// not in lock/internal, since the worker needs it, and lockers in modules of their own. A locker outside of
// this project can do without it: lock.Lock says how its context must behave, and the tests of lock/locktest have an example.
package lease
