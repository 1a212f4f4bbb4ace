package store

// The parts of a queue: what it is for those who have one task with it. Each is a type of its own. Two stand elsewhere: Sessions
// in claim.go, and Cron in cron.go.

// Flows is a queue for those who have to do with its flows: producers, which make and fill them; the workers that go on with them; and those who look at them.
type Flows struct{ q *Queue }

// Flows returns the queue for its flows.
func (q *Queue) Flows() *Flows { return &Flows{q} }

// Outboxes is a queue for the relays of outboxes, and for those who look at outboxes and forget them.
type Outboxes struct{ q *Queue }

// Outboxes returns the queue for its outboxes.
func (q *Queue) Outboxes() *Outboxes { return &Outboxes{q} }

// Transfer is a queue for what brings jobs from one queue to another: moves, exports and imports, copies of dead
// jobs, and what comes from other frameworks.
type Transfer struct{ q *Queue }

// Transfer returns the queue for what brings jobs to it, or from it to others.
func (q *Queue) Transfer() *Transfer { return &Transfer{q} }

// Channels is a queue for those who listen: to its settings, for room, for the end of a job, or for work.
type Channels struct{ q *Queue }

// Channels returns the queue for those who listen.
func (q *Queue) Channels() *Channels { return &Channels{q} }

// Presence is a queue for those who register it, ask whether anybody uses it, and remove it.
type Presence struct{ q *Queue }

// Presence returns the queue for those who register or remove it.
func (q *Queue) Presence() *Presence { return &Presence{q} }

// Durable is a queue for those who wait until what they have written is on disk, or has reached replicas.
type Durable struct{ q *Queue }

// Durable returns the queue for those who wait for disks and replicas.
func (q *Queue) Durable() *Durable { return &Durable{q} }
