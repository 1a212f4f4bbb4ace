package store

import (
	"fmt"
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
