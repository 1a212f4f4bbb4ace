package worker

import "sync"

// A mutex does some things only after it is unlocked. Logs, metrics and callbacks are the user's code and may take long, and
// other queues have mutexes of their own. Who holds the mutex passes such things to later, and nobody has to remember them.
type mutex struct {
	sync.Mutex
	after []func()
}

// later has f called when the mutex is unlocked. The mutex is held.
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
