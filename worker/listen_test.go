package worker

import (
	"log/slog"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store"
)

// TestListenersShareConnections: the queues of a server share blocked connections, and no call names very many of them.
func TestListenersShareConnections(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	for queues, want := range map[int]int{1: 1, 128: 1, 129: 2, 1000: 8} {
		w := &Worker{rdb: rdb, cfg: Config{Queues: Queues{}}, log: slog.New(slog.DiscardHandler)}
		qs := make([]*queue, queues)
		for i := range qs {
			name := strconv.Itoa(i)
			w.cfg.Queues[name] = Queue{}
			s := store.New(rdb, "", name)
			qs[i] = newQueue(w, s, s, 1, nil)
		}
		listeners := listen(rdb, w.log, qs)
		if len(listeners) != want || w.blocking() != want {
			t.Errorf("%d queues: %d listeners, %d connections for them, want %d", queues, len(listeners), w.blocking(), want)
		}
		all := 0
		for _, l := range listeners {
			all += len(l.queues)
			if len(l.queues) > 128 {
				t.Errorf("a call names %d queues", len(l.queues))
			}
		}
		if all != queues || qs[queues-1].listener == nil {
			t.Errorf("%d of %d queues are listened to", all, queues)
		}
	}
}
