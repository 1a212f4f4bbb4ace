package pglock

// Waiting returns how many wait for a key in this process.
func Waiting(p *Locker, key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lines[key]; l != nil {
		return len(l.waiters)
	}
	return 0
}

// Statements returns the statements that acquire, extend and release a lock of the default table.
func Statements() (acquire, extend, release string) {
	s := statementsFor(DefaultTable)
	return s.acquire, s.extend, s.release
}
