package main

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

// recorder returns a worker whose operations are recorded, on a server.
func recorder(t *testing.T, rdb *redis.Client, id int64) (*worker, func() []operation) {
	t.Helper()
	locker, err := lock.New(rdb, lock.Config{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := &worker{client: &client{task: task{ID: id}, locker: locker, clocks: calibrate(), out: &out}, locker: locker, rand: rand.New(rand.NewPCG(1, 2))}
	return w, func() []operation {
		var events []event
		for from := json.NewDecoder(bytes.NewReader(out.Bytes())); from.More(); {
			var e event
			if err := from.Decode(&e); err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
		ops, err := assemble(id, events)
		if err != nil {
			t.Fatal(err)
		}
		return ops
	}
}

// The server loses its memory, and another gets the lock. The first holder's release is late on its way, so it is sent twice. It finds the other
// holder, takes its own first copy for the reason, and says that all is well. The model permits that only after a loss of memory, and only
// if another asked for the lock. If nobody did, the release says that the lock is lost.
func TestReleaseSentTwiceOverALossOfMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		taken bool
		want  result
	}{
		"another has it": {true, done},
		"nobody has it":  {false, lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, key := redistest.New(t), "k"
			proxy := redistest.NewProxy(t, s.Addr())
			options := &redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1}
			rdb := redis.NewClient(options)
			defer func() { _ = rdb.Close() }()
			a, opsOfA := recorder(t, rdb, 1)
			b, opsOfB := recorder(t, s.Client().(*redis.Client), 2)
			acquire := func(w *worker) (lock.Lock, int64) {
				l, id, err := w.ask(t.Context(), key, w.locker.Acquire)
				if err != nil || l == nil {
					t.Fatalf("no lock: %v", err)
				}
				return l, id
			}
			l, id := acquire(a)
			forgets := loss{from: monotonic()}
			if err := s.Client().FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			forgets.until = monotonic()
			if c.taken {
				acquire(b)
			}
			held, free := proxy.HoldRequests(redistest.Command("EVALSHA"))
			released := make(chan error, 1)
			go func() { released <- a.release(t.Context(), l, id) }()
			<-held
			<-held // its second copy
			free()
			if err := <-released; err != nil {
				t.Fatal(err)
			}
			ops := append(opsOfA(), opsOfB()...)
			last := slices.IndexFunc(ops, func(o operation) bool { return o.do == release })
			if ops[last].result != c.want {
				t.Errorf("the release says %q, want %q", ops[last].result, c.want)
			}
			if result := checkModel(ops, []loss{forgets}, time.Minute); result != porcupine.Ok {
				t.Errorf("the model says: %s", result)
			}
			ops[last].result = done
			if c.taken {
				if result := checkModel(ops, nil, time.Minute); result != porcupine.Illegal {
					t.Errorf("without a loss of memory: %s", result)
				}
				return
			}
			if result := checkModel(ops, []loss{forgets}, time.Minute); result != porcupine.Illegal {
				t.Errorf("the lock was gone, nobody else has asked for it, and a release may say that all is well: %s", result)
			}
		})
	}
}
