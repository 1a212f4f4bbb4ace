package server

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// Servers with something wrong, and servers with something doubtful.
func TestInspectEviction(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin := srv.Client()
	keys := []string{layout.KeysOf("", redistest.Name(t)).Jobs}
	for _, c := range []struct{ policy, limit, wrong, doubt string }{
		{"noeviction", "0", "", ""},
		{"noeviction", "100mb", "", ""},
		{"allkeys-lru", "100mb", "allkeys-lru, so it deletes jobs", ""},
		{"allkeys-random", "0", "", "as soon as maxmemory is set"},
		{"volatile-ttl", "100mb", "", "volatile-ttl. It deletes no job"},
		{"volatile-lru", "0", "", ""},
	} {
		admin.ConfigSet(bg, "maxmemory-policy", c.policy)
		admin.ConfigSet(bg, "maxmemory", c.limit)
		f, err := Inspect(bg, admin, keys, Worker)
		if err != nil {
			t.Fatal(err)
		}
		if !says(f.Wrong, c.wrong) || !says(f.Doubts, c.doubt) || f.Eviction != c.policy || f.Version == "" {
			t.Errorf("%s with %s: wrong %q, doubts %q, eviction %s, version %q", c.policy, c.limit, f.Wrong, f.Doubts, f.Eviction, f.Version)
		}
		if (f.Err() != nil) != (c.wrong != "") {
			t.Errorf("%s with %s: %v", c.policy, c.limit, f.Err())
		}
	}
}

// If one of several masters has something wrong, that counts, even if another one is only a replica in a failover.
func TestFindingsOfSeveralMasters(t *testing.T) {
	t.Parallel()
	well, replica, evicts := Findings{}, Findings{Wrong: []string{"a replica"}, Passing: true}, Findings{Wrong: []string{"evicts"}}
	for _, c := range []struct {
		of      []Findings
		wrong   int
		passing bool
	}{
		{[]Findings{well, replica, well}, 1, true},
		{[]Findings{replica, replica}, 1, true},
		{[]Findings{replica, evicts}, 2, false},
		{[]Findings{evicts, replica, well}, 2, false},
		{[]Findings{well, evicts}, 1, false},
	} {
		var sum Findings
		for _, one := range c.of {
			sum.add(&one)
		}
		if len(sum.Wrong) != c.wrong || sum.Passing != c.passing {
			t.Errorf("of %+v: wrong %q, passing %v", c.of, sum.Wrong, sum.Passing)
		}
	}
}

// says reports whether list has exactly one text, which contains part. If part is empty, it reports whether list is empty.
func says(list []string, part string) bool {
	if part == "" {
		return len(list) == 0
	}
	return len(list) == 1 && strings.Contains(list[0], part)
}

// An ACL may hide everything that isn't needed. Unknown values are reported as such.
func TestInspectWhenInfoIsDenied(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin := srv.Client()
	login := func(name string, more ...any) *redis.Client {
		rules := append([]any{"ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+hello", "+client"}, more...)
		for _, c := range Commands(Worker) {
			rules = append(rules, "+"+c)
		}
		if err := admin.Do(bg, rules...).Err(); err != nil {
			t.Fatal(err)
		}
		return srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = name, "secret" }).(*redis.Client)
	}
	keys := []string{layout.KeysOf("", redistest.Name(t)).Jobs}
	f, err := Inspect(bg, login("plain"), keys, Worker)
	if err != nil || f.Err() != nil || !says(f.Doubts, "doesn't say what its maxmemory-policy is") {
		t.Errorf("%+v, %v; want one doubt", f, err)
	}
	admin.ConfigSet(bg, "maxmemory-policy", "allkeys-lfu")
	admin.ConfigSet(bg, "maxmemory", "100mb")
	if f, err = Inspect(bg, login("reader", "+config|get"), keys, Worker); err != nil || !says(f.Wrong, "allkeys-lfu") {
		t.Errorf("%+v, %v; want what CONFIG says", f, err)
	}
}

// If the user lacks a command, the error names the command and the rule that allows it.
func TestInspectNamesWhatTheUserLacks(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin := srv.Client()
	keys := []string{layout.KeysOf("", redistest.Name(t)).Jobs}
	look := func(role Role, rules ...any) *Findings {
		t.Helper()
		rules = append([]any{"ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "&*", "+@all"}, rules...)
		if err := admin.Do(bg, rules...).Err(); err != nil {
			t.Fatal(err)
		}
		rdb := srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "app", "secret" })
		f, err := Inspect(bg, rdb, keys, role)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, role := range []Role{Producer, Worker, Reporter} {
		if f := look(role); len(f.Wrong) > 0 {
			t.Errorf("%s with all rights: %q", role, f.Wrong)
		}
		for _, command := range Commands(role) {
			rule := "+" + strings.ToLower(command)
			f := look(role, "-"+strings.ToLower(command))
			if len(f.Wrong) != 1 || !strings.Contains(f.Wrong[0], "ACL SETUSER app "+rule) && !(command == "EVALSHA" && strings.Contains(f.Wrong[0], "+evalsha")) {
				// EVAL is called only if the server doesn't know a script yet, which happens once.
				t.Errorf("%s without %s: %q", role, command, f.Wrong)
			}
		}
	}
	if f := look(Worker, "-rpush", "-lpush"); !says(f.Wrong, "user app may not call LPUSH, RPUSH, which a worker calls; allow it with: ACL SETUSER app +lpush +rpush") {
		t.Errorf("two commands: %q", f.Wrong)
	}
	for role, want := range map[Role]string{
		Worker:   "user app may not use the channels signalbox:*, over which workers are woken; allow it with: ACL SETUSER app &signalbox:* +publish +spublish +ssubscribe +subscribe",
		Producer: "user app may not use the channels signalbox:*, over which workers are woken; allow it with: ACL SETUSER app &signalbox:* +publish +spublish",
		Operator: "user app may not use the channels signalbox:*, over which workers are woken; allow it with: ACL SETUSER app &signalbox:* +publish +spublish",
		Reporter: "",
	} {
		if f := look(role, "resetchannels", "&other:*"); !says(f.Wrong, want) {
			t.Errorf("%s with other channels: %q", role, f.Wrong)
		}
		if f := look(role, "resetchannels", "&signalbox:{*}:*"); len(f.Wrong) > 0 {
			t.Errorf("%s with its channels: %q", role, f.Wrong)
		}
	}
	if f := look(Worker, "resetkeys", "~other:*"); !says(f.Wrong, "may not use the key "+keys[0]) {
		t.Errorf("other keys: %q", f.Wrong)
	}
}

// A client that names a database calls SELECT. The user may lack this command, and the server may lack the database.
func TestInspectADatabase(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin := srv.Client()
	keys := []string{layout.KeysOf("", redistest.Name(t)).Jobs}
	look := func(db int, rules ...any) *Findings {
		t.Helper()
		rules = append([]any{"ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "&*", "+@all"}, rules...)
		if err := admin.Do(bg, rules...).Err(); err != nil {
			t.Fatal(err)
		}
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "app", Password: "secret", DB: db})
		defer rdb.Close()
		f, err := Inspect(bg, rdb, keys, Worker)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, c := range []struct {
		db    int
		rule  string
		wrong string
	}{
		{0, "-select", ""},
		{3, "+select", ""},
		{3, "-select", "user app may not call SELECT, as the client's URL or Options name database 3; name none, or allow it with: ACL SETUSER app +select"},
		{99, "+select", "it has no database 99; name one below its setting databases in the client's URL or Options, or none"},
	} {
		if f := look(c.db, c.rule); !says(f.Wrong, c.wrong) {
			t.Errorf("database %d, %s: %q", c.db, c.rule, f.Wrong)
		}
	}
	if f := look(0, "-evalsha", "-eval"); !says(f.Wrong, "user app may not run scripts") || !strings.Contains(f.Wrong[0], "+evalsha +eval") {
		t.Errorf("without scripts: %q", f.Wrong)
	}
}

// If a server can't report what the user may call, it is used all the same.
func TestInspectWithoutACLs(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	rdb, keys := proxy.Client(), []string{layout.KeysOf("", redistest.Name(t)).Jobs}
	isScript := func(cmd []string) bool { return strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") }
	proxy.Reply(isScript, "-ERR user_script:9: attempt to call field 'acl_check_cmd' (a nil value)", 1)
	if f, err := Inspect(bg, rdb, keys, Worker); err != nil || f.Err() != nil {
		t.Errorf("%+v, %v", f, err)
	}
	proxy.Reply(isScript, "-LOADING Redis is loading the dataset in memory", -1)
	if f, err := Inspect(bg, rdb, keys, Worker); err == nil {
		t.Errorf("a server that is loading: %+v, want an error", f)
	}
}

// A change while Oversee runs is logged once.
func TestOversee(t *testing.T) {
	t.Parallel()
	o := oversee(t)
	o.look()
	if log := o.said.String(); log != "" {
		t.Errorf("nothing changed: %s", log)
	}
	o.admin.ConfigSet(bg, "maxmemory-policy", "allkeys-lru")
	o.look()
	doubts := o.found.Load()
	o.admin.ConfigSet(bg, "maxmemory", "100mb")
	o.look()
	wrong := o.found.Load()
	o.look()
	if again := o.found.Load(); len(doubts.Doubts) != 1 || len(wrong.Wrong) != 1 || again == wrong || !again.WrongSince.Equal(wrong.WrongSince) ||
		!wrong.WrongSince.After(doubts.DoubtsSince) {
		t.Errorf("found %+v, then %+v and %+v", doubts, wrong, again)
	}
	o.admin.ConfigSet(bg, "maxmemory-policy", "noeviction")
	o.look()
	if now := o.found.Load(); len(now.Wrong)+len(now.Doubts) != 0 {
		t.Errorf("found %+v", now)
	}
	log := o.end()
	for _, c := range []string{"level=WARN", "as soon as maxmemory is set", "level=ERROR", "so it deletes jobs", "level=INFO", "set up well again"} {
		if strings.Count(log, c) != 1 {
			t.Errorf("%d times %q in the log:\n%s", strings.Count(log, c), c, log)
		}
	}
}

// TestOverseeOverlooksAFailover: during a failover a client can see the old role. That is no mistake in the server's settings.
func TestOverseeOverlooksAFailover(t *testing.T) {
	t.Parallel()
	o := oversee(t)
	o.admin.SlaveOf(bg, "127.0.0.1", "1")
	o.look()
	o.admin.SlaveOf(bg, "NO", "ONE")
	o.look()
	if log := o.end(); log != "" {
		t.Errorf("a failover: %s", log)
	}
}

// overseen is a server for one test, which Oversee inspects.
type overseen struct {
	admin redis.UniversalClient
	said  lines
	found atomic.Pointer[Findings]
	look  func()        // has Oversee look, more than once, and waits until it has
	end   func() string // ends Oversee and returns what it logged
}

// oversee runs Oversee until end is called.
func oversee(t *testing.T) *overseen {
	t.Helper()
	o := &overseen{admin: redistest.New(t).Client()}
	keys := []string{layout.KeysOf("", redistest.Name(t)).Jobs}
	before, err := Inspect(bg, o.admin, keys, Worker)
	if err != nil {
		t.Fatal(err)
	}
	o.found.Store(before)
	again, done := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(bg)
	go func() {
		defer close(done)
		Oversee(ctx, o.admin, slog.New(slog.NewTextHandler(&o.said, nil)), &o.found, again, keys, Worker)
	}()
	o.look = func() { again <- struct{}{}; again <- struct{}{}; again <- struct{}{} } // Oversee takes the third value only after two inspections
	o.end = func() string {
		cancel()
		<-done
		return o.said.String()
	}
	return o
}

// lines keeps the lines that are written.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
