package inspect_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// usedMemory returns how many bytes the server has allocated.
func usedMemory(t *testing.T, rdb redis.UniversalClient) int64 {
	t.Helper()
	for line := range strings.Lines(rdb.Info(t.Context(), "memory").Val()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("INFO has no used_memory")
	return 0
}

// The memory of a queue is within 15 % of what the server's has grown by.
func TestMemoryIsNear(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	s := newStage(t, rdb)
	memory := func() int64 {
		m, err := s.ins.Memory(t.Context(), s.Name())
		s.must(err)
		return m.Total()
	}
	enqueue := func(from, n int, after time.Duration) {
		for i := from; i < from+n; i += 500 {
			var items []store.Item
			for k := range 500 {
				item, err := store.NewItem(&signalbox.Job{ID: fmt.Sprintf("%024d", i+k), Kind: "task", Payload: []byte(`"` + strings.Repeat("x", 198) + `"`)}, store.When{After: after})
				s.must(err)
				items = append(items, item)
			}
			s.enqueue.Next()
			_, err := s.Enqueue(t.Context(), s.enqueue, items)
			s.must(err)
		}
	}
	enqueue(0, 500, 0) // scripts and buffers take room once
	enqueue(500, 500, time.Hour)
	began, before := memory(), usedMemory(t, rdb)
	enqueue(1000, 10_000, 0)
	enqueue(11_000, 10_000, time.Hour)
	estimate, grown := memory()-began, usedMemory(t, rdb)-before
	if off := float64(estimate)/float64(grown) - 1; math.Abs(off) > .15 {
		t.Errorf("20,000 jobs take %d bytes; the estimate is %d, %.1f %% off", grown, estimate, 100*off)
	}
}

// Each part of the memory grows by what it is of.
func TestMemoryParts(t *testing.T) {
	t.Parallel()
	parts := func(t *testing.T, s *stage) {
		before := inspect.Memory{}
		grows := func(what string, part func(m *inspect.Memory) int64, least int64) {
			t.Helper()
			m, err := s.ins.Memory(t.Context(), s.Name())
			s.must(err)
			if grown := part(&m) - part(&before); grown < least {
				t.Errorf("%s: it grew by %d bytes, want at least %d: %+v, before %+v", what, grown, least, m, before)
			}
			if m.Total() < before.Total()+least {
				t.Errorf("%s: together it is %d bytes, before %d", what, m.Total(), before.Total())
			}
			before = m
		}
		grows("a session", func(m *inspect.Memory) int64 { return m.Other }, 50)
		s.puts(numbered("job-with-a-long-id-", 500)...)
		grows("records", func(m *inspect.Memory) int64 { return m.Records }, 20_000)
		grows("nothing more", func(m *inspect.Memory) int64 { return m.Records }, 0)
		s.claim(500)
		grows("running jobs", func(m *inspect.Memory) int64 { return m.Places }, 15_000)
		for _, id := range numbered("in-a-group-", 100) {
			s.put(signalbox.Job{ID: id, Group: "acme"}, store.When{})
		}
		grows("groups", func(m *inspect.Memory) int64 { return m.Groups }, 3000)
		for _, id := range numbered("unique-", 100) {
			s.unique(id, id, 'e')
		}
		grows("unique keys", func(m *inspect.Memory) int64 { return m.Unique }, 3000)
		s.batch("news", "member")
		grows("batches", func(m *inspect.Memory) int64 { return m.Batches }, 100)
		grows("statistics", func(m *inspect.Memory) int64 { return m.Statistics }, 0)
	}
	t.Run("one server", func(t *testing.T) { // a real one: the embedded one doesn't say
		t.Parallel()
		parts(t, newStage(t, redistest.New(t).Client()))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		parts(t, newStage(t, redistest.Cluster(t).Client()))
	})
}

// Without an answer of the server nothing is known, and the error says what to do.
func TestMemoryNotKnown(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	if m, err := s.ins.Memory(t.Context(), "mial"); !errors.Is(err, inspect.ErrNoQueue) || m.Total() != 0 {
		t.Errorf("a queue that isn't there: %+v, %v", m, err)
	}

	t.Run("ACL", func(t *testing.T) {
		t.Parallel()
		srv := redistest.New(t)
		admin := srv.Client()
		s := newStage(t, admin)
		s.puts("a")
		s.must(admin.Do(t.Context(), viewerRule(t)...).Err())
		ins := inspector(t, srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "viewer", "CHANGE-ME" }), s.namespace)
		if m, err := ins.Memory(t.Context(), s.Name()); err != nil || m.Records == 0 {
			t.Errorf("as a viewer: %+v, %v", m, err)
		}
		s.must(admin.Do(t.Context(), "ACL", "SETUSER", "viewer", "-memory|usage").Err())
		if m, err := ins.Memory(t.Context(), s.Name()); !errors.Is(err, inspect.ErrNotKnown) || !strings.Contains(err.Error(), "ACL SETUSER viewer +memory|usage") || m.Total() != 0 {
			t.Errorf("denied: %+v, %v", m, err)
		}
	})

	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		srv, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { srv.Close() })
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
		t.Cleanup(func() { rdb.Close() })
		s := newStage(t, rdb)
		s.puts("a")
		if m, err := s.ins.Memory(t.Context(), s.Name()); !errors.Is(err, inspect.ErrNotKnown) || m.Total() != 0 {
			t.Errorf("it doesn't know its memory: %+v, %v", m, err)
		}
	})
}
