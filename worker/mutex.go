package worker

import "sync"

// A mutex can postpone function calls until it is unlocked. Logs, metrics and callbacks are the user's code and may take long, and
// other queues have their own mutexes. Code that holds the mutex passes such calls to later. Unlock makes them.
type mutex struct {
	sync.Mutex
	after []func()
}

// later postpones a call of f until the mutex is unlocked. The mutex is held.
func (m *mutex) later(f func()) { m.after = append(m.after, f) }

// Unlock unlocks the mutex and then calls what was passed to later, in order.
func (m *mutex) Unlock() {
	after := m.after
	m.after = nil
	m.Mutex.Unlock()
	for _, f := range after {
		f()
	}
}
