// Package asynq reads the tasks of asynq in Redis, and takes them out of it. It knows the layout of asynq 0.24 to 0.26, and is no part of asynq.
//
// A task that is taken is staged: its hash has another name, by which asynq doesn't know it, and the hash asynq:{queue}:signalbox says where it was. Decision 52 has the protocol.
package asynq

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A State is that of a task, as asynq names it.
type State string

// The states from which tasks can be taken.
const (
	Pending   State = "pending"
	Scheduled State = "scheduled"
	Retry     State = "retry"
	Archived  State = "archived"
)

// States are those from which tasks can be taken, in the order in which it is done.
func States() []State { return []State{Pending, Retry, Scheduled, Archived} }

// A Queue is one of asynq's.
type Queue struct {
	rdb  redis.UniversalClient
	name string
}

// Open returns a queue. It calls nothing.
func Open(rdb redis.UniversalClient, name string) *Queue { return &Queue{rdb, name} }

// Name returns its name.
func (q *Queue) Name() string { return q.name }

// key returns the queue's key of that name.
func (q *Queue) key(name string) string { return "asynq:{" + q.name + "}:" + name }

// task returns the key of a task's hash, and staged that of the hash while it is staged under a name.
func (q *Queue) task(id string) string     { return q.key("t:" + id) }
func (q *Queue) staging() string           { return q.key("signalbox") }
func (q *Queue) staged(name string) string { return q.key("signalbox:" + name) }

// Queues returns the names of all queues, sorted.
func Queues(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
	names, err := rdb.SMembers(ctx, "asynq:queues").Result()
	slices.Sort(names)
	return names, err
}

// Counts are the numbers of a queue's tasks.
type Counts struct {
	By        map[State]int64 // of the states from which tasks can be taken
	Active    int64
	Completed int64 // that are kept
	Staged    int64
	// Groups are the tasks that wait in groups, or are being aggregated.
	Groups int64
	Paused bool
}

// Counts returns the numbers of the queue's tasks.
func (q *Queue) Counts(ctx context.Context) (Counts, error) {
	groups, err := q.groups(ctx)
	if err != nil {
		return Counts{}, err
	}
	p := q.rdb.Pipeline()
	by := make(map[State]*redis.IntCmd)
	for _, s := range States() {
		if s == Pending {
			by[s] = p.LLen(ctx, q.key(string(s)))
		} else {
			by[s] = p.ZCard(ctx, q.key(string(s)))
		}
	}
	active, completed := p.LLen(ctx, q.key("active")), p.ZCard(ctx, q.key("completed"))
	staged, paused := p.HLen(ctx, q.staging()), p.Exists(ctx, q.key("paused"))
	var waiting []*redis.IntCmd
	for _, key := range groups {
		waiting = append(waiting, p.ZCard(ctx, key))
	}
	if _, err := p.Exec(ctx); err != nil {
		return Counts{}, err
	}
	c := Counts{By: make(map[State]int64), Active: active.Val(), Completed: completed.Val(), Staged: staged.Val(), Paused: paused.Val() > 0}
	for s, n := range by {
		c.By[s] = n.Val()
	}
	for _, n := range waiting {
		c.Groups += n.Val()
	}
	return c, nil
}

// Len returns how many tasks of a state the queue has.
func (q *Queue) Len(ctx context.Context, state State) (int64, error) {
	if state == Pending {
		return q.rdb.LLen(ctx, q.key(string(state))).Result()
	}
	return q.rdb.ZCard(ctx, q.key(string(state))).Result()
}

// groups returns the keys of the queue's groups. The set of groups lacks those of a cut-off aggregation, so the names of all keys are looked through.
func (q *Queue) groups(ctx context.Context) ([]string, error) {
	var keys []string
	scan := func(ctx context.Context, rdb redis.Cmdable) error {
		for cursor := uint64(0); ; {
			some, next, err := rdb.ScanType(ctx, cursor, escaped(q.key("g:"))+"*", 10_000, "zset").Result()
			if err != nil {
				return err
			}
			keys = append(keys, some...)
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	var err error
	if cluster, ok := q.rdb.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}); ok { // all of the queue's keys are on one master
		var master *redis.Client
		if master, err = cluster.MasterForKey(ctx, q.key("g:")); err == nil {
			err = scan(ctx, master)
		}
	} else {
		err = scan(ctx, q.rdb)
	}
	slices.Sort(keys)
	return slices.Compact(keys), err
}

// escaped returns a text as the pattern that fits it alone.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// A Task is one of a queue, as it was read.
type Task struct {
	ID      string
	State   State
	At      time.Time     // pending: since when; scheduled, retry: when it is due; archived: when it died. Zero if it isn't known
	Message *Message      // nil if it can't be read
	Unique  time.Duration // how long the task still has its unique key; 0 if it has none, or no more
	digest  string
	unique  string // its key, whether the task still has it or not
	place   int64  // of a pending one: how far from the tail of the list it was read, from 1
}

// page is how many tasks are read at a time.
const page = 100

// A Cursor is a place in a list of tasks. The zero value is the start.
type Cursor struct{ skip int64 }

// Stayed moves the cursor behind tasks that were read and weren't taken. Those that were taken are there no more.
func (c *Cursor) Stayed(n int) { c.skip += int64(n) }

// Tasks reads the next tasks of a state, oldest first. seen is how many places were read, also those whose tasks have gone meanwhile: 0 at the end. Places whose task isn't among the tasks count as stayed.
func (q *Queue) Tasks(ctx context.Context, state State, c Cursor) (tasks []Task, seen int, err error) {
	var ids []string
	scores := make(map[string]float64)
	if state == Pending {
		ids, err = q.rdb.LRange(ctx, q.key(string(state)), -c.skip-page, -c.skip-1).Result()
		slices.Reverse(ids)
	} else {
		var zs []redis.Z
		zs, err = q.rdb.ZRangeWithScores(ctx, q.key(string(state)), c.skip, c.skip+page-1).Result()
		for _, z := range zs {
			id, _ := z.Member.(string)
			ids, scores[id] = append(ids, id), z.Score
		}
	}
	if err != nil || len(ids) == 0 {
		return nil, 0, err
	}
	found, err := q.read(ctx, ids, q.task)
	if err != nil {
		return nil, 0, err
	}
	for i := range found {
		t := &found[i]
		if t.State != state {
			continue
		}
		t.place = c.skip + int64(i) + 1
		if state != Pending {
			t.At = time.UnixMicro(int64(scores[t.ID] * 1e6)).UTC()
		}
		tasks = append(tasks, *t)
	}
	return tasks, len(ids), nil
}

// read reads the hashes of tasks. One that isn't there has no State.
func (q *Queue) read(ctx context.Context, ids []string, key func(string) string) ([]Task, error) {
	p := q.rdb.Pipeline()
	fields := make([]*redis.SliceCmd, len(ids))
	for i, id := range ids {
		fields[i] = p.HMGet(ctx, key(id), "msg", "state", "pending_since")
	}
	if _, err := p.Exec(ctx); err != nil {
		return nil, err
	}
	tasks := make([]Task, len(ids))
	holders, ttls := make(map[int]*redis.StringCmd), make(map[int]*redis.DurationCmd)
	p = q.rdb.Pipeline()
	for i, id := range ids {
		v := fields[i].Val()
		text := func(i int) string { s, _ := v[i].(string); return s }
		t := &tasks[i]
		t.ID, t.State = id, State(text(1))
		msg := text(0)
		t.digest = digestOf(msg)
		if ns, err := strconv.ParseInt(text(2), 10, 64); err == nil && ns > 0 {
			t.At = time.Unix(0, ns).UTC().Truncate(time.Microsecond)
		}
		if t.Message, _ = Decode([]byte(msg)); t.Message == nil {
			continue
		}
		// A key of another slot isn't one that asynq has made.
		if t.unique = t.Message.UniqueKey; strings.HasPrefix(t.unique, q.key("unique:")) {
			holders[i], ttls[i] = p.Get(ctx, t.unique), p.PTTL(ctx, t.unique)
		} else {
			t.unique = ""
		}
	}
	if len(holders) == 0 {
		return tasks, nil
	}
	if _, err := p.Exec(ctx); err != nil && err != redis.Nil {
		return nil, err
	}
	for i, holder := range holders {
		if err := holder.Err(); err != nil && err != redis.Nil {
			return nil, err
		}
		if t := &tasks[i]; holder.Val() == t.Message.ID {
			t.Unique = max(ttls[i].Val(), 0)
		}
	}
	return tasks, nil
}

// digestOf returns the SHA-1 of a message, as scripts make it.
func digestOf(msg string) string {
	sum := sha1.Sum([]byte(msg))
	return hex.EncodeToString(sum[:])
}

// Take stages tasks that were read from one state, each under the name that stands in its place in names. to says where they go. It returns for each whether it was
// taken: false if it has changed, has started, or is gone. After an error some may have been taken.
func (q *Queue) Take(ctx context.Context, state State, to string, tasks []Task, names []string) ([]bool, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	keys, args := []string{q.staging(), q.key(string(state))}, []any{string(state), to, tasks[0].place, tasks[len(tasks)-1].place}
	for i := range tasks {
		t := &tasks[i]
		keys = append(keys, q.task(t.ID), q.staged(names[i]))
		args = append(args, t.ID, names[i], t.digest)
	}
	reply, err := take.Run(ctx, q.rdb, keys, args...).Int64Slice()
	if err == nil && len(reply) != len(tasks) {
		err = fmt.Errorf("asynq: %d answers for %d tasks", len(reply), len(tasks))
	}
	if err != nil {
		return nil, err
	}
	taken := make([]bool, len(tasks))
	for i, n := range reply {
		taken[i] = n == 1
	}
	return taken, nil
}

// A Staged is a task that was taken.
type Staged struct {
	Task
	Name string
	To   string // where it goes
}

// Staged reads some of the tasks that are staged. next is the cursor of the next call: 0 behind the last ones, as in the first call. One may come twice.
func (q *Queue) Staged(ctx context.Context, cursor uint64) (staged []Staged, next uint64, err error) {
	fields, next, err := q.rdb.HScan(ctx, q.staging(), cursor, "", page).Result()
	if err != nil {
		return nil, 0, err
	}
	var names []string
	scores := make(map[string]string)
	for i := 0; i+1 < len(fields); i += 2 {
		parts := strings.SplitN(fields[i+1], " ", 4) // an ID may have spaces
		if len(parts) != 4 {
			return nil, 0, fmt.Errorf("asynq: the staging of queue %q has an entry that another program wrote", q.name)
		}
		s := Staged{Name: fields[i], To: parts[2]}
		s.ID, s.State, scores[s.Name] = parts[3], State(parts[0]), parts[1]
		staged, names = append(staged, s), append(names, s.Name)
	}
	read, err := q.read(ctx, names, q.staged)
	if err != nil {
		return nil, 0, err
	}
	for i := range staged {
		s := &staged[i]
		s.Message, s.At, s.Unique, s.unique = read[i].Message, read[i].At, read[i].Unique, read[i].unique
		if s.State != Pending {
			score, err := strconv.ParseFloat(scores[s.Name], 64)
			if err != nil {
				return nil, 0, fmt.Errorf("asynq: the staging of queue %q has an entry that another program wrote", q.name)
			}
			s.At = time.UnixMicro(int64(score * 1e6)).UTC()
		}
	}
	// Those of another mover may have been ended between the two reads.
	return slices.DeleteFunc(staged, func(s Staged) bool { return s.Message == nil }), next, nil
}

// Stage returns a task that Take has taken as it is staged.
func (t *Task) Stage(name, to string) Staged {
	return Staged{Task: *t, Name: name, To: to}
}

// End forgets staged tasks: they have gone on elsewhere. A unique key goes with its task if it is the task's. It may be called again.
func (q *Queue) End(ctx context.Context, staged []Staged) error {
	if len(staged) == 0 {
		return nil
	}
	keys, args := []string{q.staging()}, make([]any, 0, 2*len(staged))
	for i := range staged {
		s := &staged[i]
		keys = append(keys, q.staged(s.Name), cmp.Or(s.unique, q.staged(s.Name)))
		args = append(args, s.Name, s.ID)
	}
	return end.Run(ctx, q.rdb, keys, args...).Err()
}

// Back puts a staged task back to where it was. done is false if asynq has another task of its ID by now: then it stays staged.
func (q *Queue) Back(ctx context.Context, s *Staged) (done bool, err error) {
	word, err := back.Run(ctx, q.rdb, []string{q.staging(), q.staged(s.Name), q.task(s.ID), q.key(string(s.State))}, s.Name, s.ID).Text()
	return word != "taken", err
}

// Entries returns the periodic tasks of all schedulers that run: each once, also if several have it.
func Entries(ctx context.Context, rdb redis.UniversalClient) ([]Entry, error) {
	keys, err := rdb.ZRange(ctx, "asynq:schedulers", 0, -1).Result()
	if err != nil {
		return nil, err
	}
	var entries []Entry
	seen := make(map[string]bool)
	for _, key := range keys {
		texts, err := rdb.LRange(ctx, key, 0, -1).Result()
		if err != nil {
			return nil, err
		}
		for _, text := range texts {
			e, err := decodeEntry([]byte(text))
			if err != nil {
				return nil, err
			}
			same := strings.Join(append([]string{e.Spec, e.Type, string(e.Payload)}, e.Options...), "\x00")
			if !seen[same] {
				seen[same], entries = true, append(entries, e)
			}
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Spec, b.Spec)) })
	return entries, nil
}
