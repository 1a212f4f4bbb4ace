package store

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// If a user lacks one of the script's commands, a lane's first call names the command, and nothing is changed.
func TestDeniedCommand(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin := srv.Client()
	var commands []string
	for _, call := range regexp.MustCompile(`redis\.call\('(\w+)'`).FindAllStringSubmatch(scripts.Sources()["enqueue"], -1) {
		commands = append(commands, call[1])
	}
	slices.Sort(commands)
	commands = slices.Compact(commands)
	for i, command := range commands {
		name := fmt.Sprint("user", i)
		allow := func(rule string) {
			t.Helper()
			if err := admin.Do(bg, "ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all", rule).Err(); err != nil {
				t.Fatal(err)
			}
		}
		allow("-" + strings.ToLower(command))
		r := newQueue(t, admin)
		r.furnish()
		before := r.dump()
		rdb := srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = name, "secret" })
		user := New(rdb, "", r.Name())
		lane := user.NewLane()
		lane.Next()
		now, err := r.Now(bg)
		r.must(err)
		items := []Item{
			r.item("dead2", When{}, signalbox.PriorityHigh), r.item("cancelled2", When{After: time.Hour}, 0), r.item("ready1", When{}, 0), r.item("completed2", When{}, 0),
			r.item("low", When{}, signalbox.PriorityLow), r.item("normal", When{}, 0), r.item("tick", When{At: now, Entry: "entry"}, 0),
		}
		_, err = user.Enqueue(bg, lane, items)
		named := command
		if command == "GET" { // the script begins with GET; Valkey names it
			named = ""
		}
		if err == nil || !strings.Contains(err.Error(), "NOPERM") && named == command || !strings.Contains(err.Error(), named) || !server.IsDenied(err) {
			t.Errorf("without %s: %v", command, err)
		}
		r.unchanged("a call without "+command, before)
		allow("+" + strings.ToLower(command))
		fates, err := user.Enqueue(bg, lane, items)
		if err != nil || fates.list != "DC0F111" {
			t.Errorf("with %s again: %q, %v", command, fates.list, err)
		}
	}
}

// A counter that a user may not increase is not reset. One that holds no number is.
func TestDeniedCounter(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin := srv.Client()
	if err := admin.Do(bg, "ACL", "SETUSER", "user", "on", ">secret", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	r := newQueue(t, admin)
	r.put("a", "b")
	r.Queue.rdb = srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "user", "secret" })
	defer func() { r.Queue.rdb = admin }()
	r.put("c") // the lane's first call could run all commands
	r.must(admin.Do(bg, "ACL", "SETUSER", "user", "-hincrby").Err())
	r.put("d")
	same(t, "counter", r.counts().Total.Enqueued, 3)
	r.must(admin.Do(bg, "ACL", "SETUSER", "user", "+hincrby").Err())
	r.must(admin.HSet(bg, r.keys.Stats, "enqueued", "nonsense").Err())
	r.put("e")
	same(t, "counter that held no number", r.counts().Total.Enqueued, 1)
}

// A user who lacks one of the commands of put.lua or act.lua, or may only read one of the keys, changes nothing, or all that was asked for: no job is between
// two places. That holds for jobs of groups and for those that expire, too.
func TestDeniedActs(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin := srv.Client()
	rules := make(map[string]bool)
	for _, script := range []string{"put", "act"} {
		for _, call := range regexp.MustCompile(`redis\.call\('(\w+)'`).FindAllStringSubmatch(scripts.Sources()[script], -1) {
			rules["-"+strings.ToLower(call[1])] = true
		}
	}
	for _, key := range []string{"LINED", "TURNS", "GROUPS", "EXPIRES"} {
		rules[key] = true
	}
	refused := 0
	for i, rule := range slices.Sorted(maps.Keys(rules)) {
		r := newQueue(t, admin)
		r.open()
		made := func(job signalbox.Job, when When) Item {
			job.Kind = "k"
			it, err := NewItem(&job, when)
			r.must(err)
			return it
		}
		r.enqueued(made(signalbox.Job{ID: "waits", Group: "g"}, When{}), made(signalbox.Job{ID: "later", Group: "g"}, When{After: time.Hour}),
			made(signalbox.Job{ID: "serial", Group: "s", Serial: true}, When{}), made(signalbox.Job{ID: "expiring", ExpireAfter: time.Hour}, When{}), r.item("plain", When{}, 0))
		due := r.rdb.ZRangeWithScores(bg, r.keys.Due, 0, 0).Val()[0].Score
		name := fmt.Sprint("actor", i)
		acl := []any{"ACL", "SETUSER", name, "on", ">secret", "&*", "+@all"}
		if key := r.keys.Named[rule]; key == "" {
			acl = append(acl, "~*", rule)
		} else {
			acl = append(acl, "%R~"+key)
			for _, other := range r.keys.Named {
				if other != key {
					acl = append(acl, "~"+other)
				}
			}
		}
		r.must(admin.Do(bg, acl...).Err())
		user := New(srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = name, "secret" }), "", r.Name())
		put := func(id string, state signalbox.State, at time.Time, like string) error {
			record, err := r.rdb.HGet(bg, r.keys.Jobs, like).Bytes()
			r.must(err)
			_, err = user.Transfer().putRecords(bg, []placement{{id: id, state: state, at: at, record: record}}, false)
			return err
		}
		do := func(a Act, ids ...string) error {
			_, err := user.Do(bg, a, ids)
			return err
		}
		for _, tc := range []struct {
			what string
			run  func() error
		}{
			{"a job of a group is put in", func() error { return put("waits2", signalbox.StateReady, time.Time{}, "waits") }},
			{"a job of a group is put in for later", func() error { return put("later2", signalbox.StateScheduled, time.UnixMicro(int64(due)), "later") }},
			{"a job that expires is put in", func() error { return put("expiring2", signalbox.StateReady, time.Time{}, "expiring") }},
			{"a dead job is put in", func() error { return put("dead2", signalbox.StateDead, time.Now(), "plain") }},
			{"a job of a group runs now", func() error { return do(RunJobs(time.Time{}), "later") }},
			{"a job of a group gets another class", func() error { return do(PrioritiseJobs(signalbox.PriorityHigh), "waits") }},
			{"jobs are cancelled", func() error { return do(CancelJobs("not needed"), "serial") }},
			{"a job that expires is deleted", func() error { return do(DeleteJobs(), "expiring") }},
		} {
			before := r.dump()
			if err := tc.run(); err != nil {
				refused++
				r.unchanged(fmt.Sprintf("%s, %s: %v", rule, tc.what, err), before)
			}
		}
		r.check()
	}
	if refused < 100 {
		t.Errorf("%d calls were refused, which are too few: does the test find the commands?", refused)
	}
}
