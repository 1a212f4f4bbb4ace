package comeover

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A book is the ledger of processes that are killed. They call it by HTTP.
type book struct {
	total int

	mu    sync.Mutex
	given int
	made  map[string]bool            // IDs of which the producer has said that they are in
	runs  []string                   // that have returned nil: the tasks
	ended map[string]int             // such runs, by ID
	acked map[string]int             // of those how many were acknowledged
	tries map[string]int             // all runs
	keys  map[string]map[string]bool // effect keys, by ID
	heard map[int]bool               // runs that were acknowledged
	here  int                        // runs that have returned nil in Signalbox
	calm  bool                       // nobody is killed any more
}

func newBook(total int) *book {
	return &book{total: total, heard: make(map[int]bool), made: make(map[string]bool), ended: make(map[string]int), acked: make(map[string]int), tries: make(map[string]int), keys: make(map[string]map[string]bool)}
}

func (b *book) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id, kind := r.FormValue("id"), ""
	if len(id) > 1 {
		task, _ := taskOf(id, "q")
		kind = task.Type()
	}
	switch r.URL.Path {
	case "/next":
		if b.given < b.total {
			fmt.Fprintf(w, "t%06d", b.given)
			b.given++
		}
	case "/made":
		b.made[id] = true
	case "/over":
		if b.calm && b.given == b.total {
			_, _ = io.WriteString(w, "yes")
		}
	case "/run":
		b.tries[id]++
		if kind == "flaky" && b.tries[id] == 1 {
			_, _ = io.WriteString(w, "fail")
			return
		}
		b.ended[id]++
		if b.keys[id] == nil {
			b.keys[id] = make(map[string]bool)
		}
		b.keys[id][r.FormValue("key")] = true
		if r.FormValue("system") == "signalbox" {
			b.here++
		}
		_, _ = io.WriteString(w, strconv.Itoa(len(b.runs)))
		b.runs = append(b.runs, id)
	case "/acked":
		n, err := strconv.Atoi(r.FormValue("run"))
		if err != nil || n < 0 || n >= len(b.runs) {
			http.Error(w, "no such run", http.StatusBadRequest)
			return
		}
		if !b.heard[n] { // two scripts may name a task at the same time
			b.heard[n] = true
			b.acked[b.runs[n]]++
		}
	default:
		http.NotFound(w, r)
	}
}

// open returns how many tasks that are surely made have not ended, and have to.
func (b *book) open() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.made {
		if task, _ := taskOf(id, "q"); b.ended[id] == 0 && task.Type() != "archived" {
			n++
		}
	}
	return n
}

// A child is a process of a part.
type child struct {
	cmd   *exec.Cmd
	said  bytes.Buffer
	stdin io.Closer
	ended chan error
}

func startPart(t *testing.T, p *part) *child {
	t.Helper()
	text, err := json.Marshal(p)
	must(t, err)
	program, err := os.Executable()
	must(t, err)
	c := &child{cmd: exec.Command(program), ended: make(chan error, 1)}
	c.cmd.Env = append(os.Environ(), partEnv+"="+string(text))
	c.cmd.Stderr = &c.said
	c.stdin, err = c.cmd.StdinPipe()
	must(t, err)
	must(t, c.cmd.Start())
	go func() { c.ended <- c.cmd.Wait() }()
	return c
}

// kill ends the process, and reports whether it was killed: it may have ended before.
func (c *child) kill(t *testing.T, name string) bool {
	t.Helper()
	select {
	case err := <-c.ended:
		if err != nil {
			t.Errorf("the %s ended by itself: %v\n%s", name, err, c.said.Bytes())
		}
		c.ended <- err
		return false
	default:
	}
	_ = c.cmd.Process.Kill()
	c.ended <- <-c.ended
	return true
}

// TestComeOverKilled moves the tasks of a service whose parts are processes: asynq's server, its producer, two movers, and two workers. One after the other is
// killed, and started again, while tasks are made. What a task has done stands outside of Redis.
//
// A task may end twice if a process was killed between its handler's return and the acknowledgement: both systems run it again then. So it counts as doubled if
// two of its runs were acknowledged. Of a task whose producer was killed before it had an answer nothing is asked.
func TestComeOverKilled(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (from, to site){
		"two": func(t *testing.T) (from, to site) { return one(t), one(t) },
		"same": func(t *testing.T) (from, to site) {
			a := one(t)
			return a, a
		},
		"cluster": func(t *testing.T) (from, to site) {
			a := redistest.Cluster(t)
			return site{a.Addrs(), a.Client()}, site{a.Addrs(), a.Client()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := open(t)
			comeOverKilled(t, from, to, *moved, *killEvery)
		})
	}
}

// A site is where one of the two systems has its tasks.
type site struct {
	addrs  []string
	client redis.UniversalClient
}

func one(t *testing.T) site {
	a := redistest.New(t)
	return site{[]string{a.Addr()}, a.Client()}
}

func comeOverKilled(t *testing.T, from, to site, total int, every time.Duration) {
	b := newBook(total)
	ledger := httptest.NewServer(b)
	t.Cleanup(ledger.Close)
	queue, old := redistest.Name(t), from.client
	names := []string{"asynq", "mover", "worker", "producer", "mover", "worker"}
	length := 3 * every * time.Duration(len(names)) // each part is killed some three times while tasks are made
	start := func(name string) *child {
		return startPart(t, &part{Name: name, From: from.addrs, To: to.addrs, Queue: queue, Ledger: ledger.URL, Every: length / time.Duration(total)})
	}
	children := make([]*child, len(names))
	for i, name := range names {
		children[i] = start(name)
	}
	t.Cleanup(func() {
		for i, c := range children {
			c.kill(t, names[i])
		}
	})

	kills := 0
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % len(names) {
		<-tick.C
		b.mu.Lock()
		b.calm = b.given == b.total
		calm := b.calm
		b.mu.Unlock()
		if calm {
			break
		}
		if children[i].kill(t, names[i]) {
			kills++
		}
		if names[i] == "asynq" {
			expireLeases(t, old, queue)
		}
		children[i] = start(names[i])
	}
	for i, name := range names {
		if name == "mover" {
			select {
			case err := <-children[i].ended:
				if err != nil {
					t.Errorf("the mover ended by itself: %v\n%s", err, children[i].said.Bytes())
				}
				children[i].ended <- nil
			case <-time.After(2 * time.Minute):
				t.Error("a mover still finds tasks to move two minutes after the last kill")
			}
		}
	}
	redistest.Eventually(t, func() bool { return b.open() == 0 }, "all tasks have ended")

	ins, err := inspect.New(to.client, inspect.Config{})
	must(t, err)
	q, err := ins.Queue(t.Context(), queue)
	must(t, err)
	info, err := asynq.NewInspectorFromRedisClient(old).GetQueueInfo(queue)
	must(t, err)
	staged, err := old.HLen(t.Context(), "asynq:{"+queue+"}:signalbox").Result()
	must(t, err)
	lost, doubled, twice, archived := b.open(), 0, 0, 0
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.acked {
		if n > 1 {
			doubled++
		}
	}
	for _, keys := range b.keys {
		if len(keys) > 1 {
			twice++
		}
	}
	for id := range b.made {
		if task, _ := taskOf(id, queue); task.Type() == "archived" {
			archived++
		}
	}
	if n := int(q.Dead+q.Scheduled) + info.Archived + info.Scheduled; n < archived || n > (b.given+len(kinds)-1)/len(kinds) {
		t.Errorf("%d archived tasks are there, of %d", n, archived)
	}
	if len(b.acked) < len(b.made)/2 || b.here == 0 {
		t.Errorf("of %d tasks %d were acknowledged, and %d ran in Signalbox", len(b.made), len(b.acked), b.here)
	}
	if lost+doubled+twice+int(staged) > 0 {
		t.Errorf("lost=%d doubled=%d twice=%d staged=%d", lost, doubled, twice, staged)
		return
	}
	t.Logf("come-over: ok tasks=%d here=%d lost=%d doubled=%d twice=%d kills=%d", len(b.made), b.here, lost, doubled, twice, kills)
}

// expireLeases has the next server of asynq take back at its start what the killed one held. By itself it would after 30 s, and a look once a minute.
func expireLeases(t *testing.T, rdb redis.UniversalClient, queue string) {
	t.Helper()
	key := "asynq:{" + queue + "}:lease"
	leases, err := rdb.ZRange(t.Context(), key, 0, -1).Result()
	must(t, err)
	for _, id := range leases {
		must(t, rdb.ZAddXX(t.Context(), key, redis.Z{Score: float64(time.Now().Add(-time.Minute).Unix()), Member: id}).Err())
	}
}
