package store

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/doctor"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// roleOf returns the role that an operation is of.
func roleOf(op operation) server.Role {
	if op.acts {
		return server.Operator
	}
	switch op.name {
	case "enqueue", "tick", "replace", "plan", "announce":
		return server.Producer
	case "relay":
		return server.Relayer
	case "remove", "pause", "resume", "slots", "keep", "pause an entry", "resume an entry", "forget an entry", "mend":
		return server.Operator
	case "show", "page", "list", "latest", "deliveries", "kinds", "history", "examine", "sum":
		return server.Viewer
	}
	return server.Worker
}

// A user who may call these commands and no others can do all that the role does.
func TestCommandsSuffice(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin := srv.Client()
	for name, role := range map[string]server.Role{"producer": server.Producer, "worker": server.Worker, "reporter": server.Reporter, "operator": server.Operator, "viewer": server.Viewer, "relayer": server.Relayer} {
		rules := []any{"ACL", "SETUSER", name, "on", ">secret", "~*", "&signalbox:*", "+hello", "+client", "+ping"}
		for _, command := range server.Commands(role) {
			rules = append(rules, "+"+strings.ToLower(command))
		}
		if err := admin.Do(bg, rules...).Err(); err != nil {
			t.Fatal(err)
		}
		rdb := srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = name, "secret" })
		if role == server.Reporter {
			q := New(rdb, "", redistest.Name(t))
			if _, err := Reporter("me").Begin(bg, q); err != nil {
				t.Errorf("to be the one that reports: %v", err)
			}
			if _, err := q.Looks().Depths(bg); err != nil {
				t.Errorf("depths: %v", err)
			}
			if err := Reporter("me").End(bg, q); err != nil {
				t.Errorf("to report no more: %v", err)
			}
			continue
		}
		for _, op := range slices.Concat(operations(), views()) {
			if is := roleOf(op); is != role && (is != server.Viewer || role != server.Operator) {
				continue
			}
			r := newQueue(t, admin)
			got := op.furnish(r)
			r.Queue.rdb = rdb
			if err := op.call(r, got); err != nil {
				t.Errorf("%s as %s: %v", op.name, name, err)
			}
			switch role {
			case server.Operator, server.Viewer:
				if got, err := r.Edit(bg, "ready1", Edit{MaxAttempts: 3}, true); role == server.Operator && (err != nil || got.Acted != Done) {
					t.Errorf("an edit as %s: %+v, %v", name, got, err)
				}
				if _, err := r.Looks().Depths(bg); err != nil {
					t.Errorf("depths as %s: %v", name, err)
				}
				if _, err := Queues(bg, rdb, ""); err != nil {
					t.Errorf("the queues as %s: %v", name, err)
				}
				if _, err := New(rdb, "", redistest.Name(t)).Presence().Known(bg); err != nil {
					t.Errorf("whether a queue is known as %s: %v", name, err)
				}
				if _, here, err := r.Settings().Quiet(bg, "me", true); (err != nil || !here) && role == server.Operator {
					t.Errorf("a quiet worker as %s: %v", name, err)
				}
				if names, err := r.Cron().EntryNames(bg); err != nil || len(names) == 0 && op.name != "forget an entry" {
					t.Errorf("the cron entries as %s: %v, %v", name, names, err)
				}
				if all, err := r.Cron().Entries(bg, []string{"old"}); err != nil || len(all) == 0 && op.name != "forget an entry" {
					t.Errorf("a cron entry as %s: %v, %v", name, all, err)
				}
				if known, err := r.Cron().RunEntry(bg, "old", "now"); role == server.Operator && (err != nil || !known && op.name != "forget an entry") {
					t.Errorf("to run a cron entry as %s: %v, %v", name, known, err)
				}
				if _, _, found, err := r.Looks().Show(bg, "f1"); err != nil || !found {
					t.Errorf("a job as %s: %v", name, err)
				}
				for _, state := range []signalbox.State{
					signalbox.StateScheduled, signalbox.StateAwaiting, signalbox.StateReady, signalbox.StateRunning, signalbox.StateDead, signalbox.StateCancelled, signalbox.StateCompleted,
				} {
					for _, err := range r.Looks().Jobs(bg, looks.Listing{State: state}) {
						if err != nil {
							t.Errorf("%s jobs as %s: %v", state, name, err)
						}
					}
				}
				if _, err := r.Sessions().Stuck(bg, "s"); err != nil {
					t.Errorf("its stuck handlers as %s: %v", name, err)
				}
				if _, err := r.Looks().Leases(bg); err != nil {
					t.Errorf("its sessions as %s: %v", name, err)
				}
				if _, err := r.Settings().Read(bg); err != nil {
					t.Errorf("its settings as %s: %v", name, err)
				}
				if _, err := doctor.Run(bg, r.Site(), doctor.Checkup{Pause: -1, Repair: role == server.Operator}); err != nil {
					t.Errorf("a doctor as %s: %v", name, err)
				}
			case server.Worker:
				if _, err := r.Sessions().Cancelled(bg, map[string]int64{"f1": 1}); err != nil {
					t.Errorf("its cancelled jobs as %s: %v", name, err)
				}
				if err := r.Sessions().WriteStuck(bg, "s", time.Minute, []Stuck{{ID: "a"}}); err != nil {
					t.Errorf("a stuck handler as %s: %v", name, err)
				}
				if err := r.Sessions().WriteStuck(bg, "s", time.Minute, nil); err != nil {
					t.Errorf("no stuck handler as %s: %v", name, err)
				}
				if err := r.Sessions().Save(bg, "s", "a", 1, &Delivery{record: wire.AppendRecord(nil, &signalbox.Job{Kind: "k"})}, []byte("x")); !errors.Is(err, ErrSuperseded) {
					t.Errorf("saving as %s: %v", name, err)
				}
				for _, jobs := range [][]Progress{{{ID: "a"}}, nil} {
					if err := r.Sessions().WriteProgress(bg, "s", time.Minute, jobs); err != nil {
						t.Errorf("progress as %s: %v", name, err)
					}
				}
				if _, err := r.Looks().Depths(bg); err != nil {
					t.Errorf("depths as %s: %v", name, err)
				}
				for _, sharded := range []bool{false, true} {
					subscribes(t, rdb, r.Queue, sharded)
				}
				if _, err := r.Presence().Unused(bg); err != nil {
					t.Errorf("whether it is used as %s: %v", name, err)
				}
			case server.Producer, server.Reporter:
				for what, call := range map[string]func() error{
					"the time":             func() error { _, err := r.Now(bg); return err },
					"that it takes writes": func() error { return r.TakesWrites(bg) },
					"what runs":            func() error { _, err := r.Looks().Running(bg, []string{"a"}); return err },
					"whether it is served": func() error { _, err := r.Presence().Unserved(bg); return err },
				} {
					if err := call(); err != nil {
						t.Errorf("%s as %s: %v", what, name, err)
					}
				}
			}
			r.Queue.rdb = admin
		}
	}
}

// subscribes fails the test if the user of a client may not hear what a worker hears.
func subscribes(t *testing.T, rdb redis.UniversalClient, q *Queue, sharded bool) {
	t.Helper()
	sub := Subscribe(bg, rdb, sharded)
	defer sub.Close()
	err := sub.Add(bg, []string{q.Channels().Control()}, []string{q.Channels().Of("a")})
	for range 2 {
		if err == nil {
			_, err = sub.Next(bg, func(string) bool { return true })
		}
	}
	if err == nil {
		err = sub.Drop(bg, []string{q.Channels().Of("a")})
	}
	if err == nil {
		_, err = sub.Next(bg, func(string) bool { return true })
	}
	if !errors.Is(err, errMoved) { // the answer to Drop
		t.Errorf("a subscription, sharded %v: %v", sharded, err)
	}
}
