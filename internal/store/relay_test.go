package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// relay sends a batch, and returns the outcomes.
func (r *rig) relay(b Batch) (string, error) {
	fates, err := r.Outboxes().Relay(bg, "box", 3, &b)
	return fates.list, err
}

// parcels returns a batch that follows the one with the letter before.
func (r *rig) parcels(seq int64, nonce string, ids ...string) Batch {
	b := Batch{Place: Place{seq, nonce}}
	if seq > 1 {
		b.After = Place{seq - 1, string(nonce[0] - 1)}
	}
	for _, id := range ids {
		b.Items = append(b.Items, r.item(id, When{}, 0))
	}
	return b
}

func (r *rig) outOfStep(err error, want Place) {
	r.t.Helper()
	var got *OutOfStepError
	if !errors.As(err, &got) || got.Last != want {
		r.t.Errorf("got %v, want %+v", err, want)
	}
}

// A batch is put in once, even if its jobs have come and gone since. Its outcomes stay those of the first call.
func TestRelayOnce(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("there")
	first := r.parcels(1, "a", "one", "there", "two")
	got, err := r.relay(first)
	r.must(err)
	same(t, "outcomes", got, "101")
	for _, d := range r.claim(3) {
		r.settle(settlement(d, Completed))
	}
	before := r.dump()
	got, err = r.relay(first)
	r.must(err)
	same(t, "outcomes again", got, "101")
	r.unchanged("the batch again", before)
	same(t, "enqueued", r.counts().Total.Enqueued, 3)
	if ttl := r.rdb.PTTL(bg, r.keys.Outbox("box", 3)).Val(); ttl != -1 {
		t.Errorf("the lane expires in %v", ttl)
	}
	last, err := r.Outboxes().Relayed(bg, "box", 2, 3)
	r.must(err)
	if !slices.Equal(last, []Place{{}, {1, "a"}}) {
		t.Errorf("last batches %v", last)
	}
}

// Whatever doesn't follow the last batch changes nothing, and the error says which one that is.
func TestRelayOutOfStep(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	_, err := r.relay(r.parcels(3, "c", "x"))
	r.outOfStep(err, Place{})
	for seq, nonce := range []string{1: "a", 2: "b", 3: "c"} {
		if nonce != "" {
			_, err := r.relay(r.parcels(int64(seq), nonce, nonce))
			r.must(err)
		}
	}
	before := r.dump()
	for what, b := range map[string]Batch{
		"an earlier one":                    r.parcels(2, "b", "b"),
		"another of its number":             r.parcels(3, "x", "x"),
		"one behind a batch that is lost":   r.parcels(5, "e", "x"),
		"one behind another of that number": {Place: Place{4, "d"}, After: Place{3, "x"}, Items: r.parcels(4, "d", "x").Items},
		"one behind an earlier one":         {Place: Place{4, "d"}, After: Place{2, "b"}, Items: r.parcels(4, "d", "x").Items},
		"the first":                         {Place: Place{4, "d"}, Items: r.parcels(4, "d", "x").Items},
		"void":                              {Place: Place{4, "d"}, After: Place{2, "b"}},
	} {
		t.Log(what)
		_, err := r.relay(b)
		r.outOfStep(err, Place{3, "c"})
	}
	r.unchanged("batches out of step", before)
	_, err = r.relay(Batch{Place: Place{9, "z"}, After: Place{3, "c"}, Items: r.parcels(1, "z", "x").Items}) // numbers may be left out
	r.must(err)
}

// A void batch can't be put in any more, and one that was put in can't become void.
func TestRelayVoid(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	void, first := r.parcels(1, "a"), r.parcels(1, "a", "x")
	for range 2 {
		_, err := r.relay(void)
		r.must(err)
	}
	if _, err := r.relay(first); !errors.Is(err, ErrVoid) {
		t.Errorf("a void batch: %v", err)
	}
	same(t, "jobs", r.rdb.HLen(bg, r.keys.Jobs).Val(), 0)
	second := r.parcels(2, "b", "y")
	_, err := r.relay(second)
	r.outOfStep(err, Place{1, "av"})
	second.After = first.Void()
	_, err = r.relay(second)
	r.must(err)
	second.Items = nil
	if _, err := r.relay(second); !errors.Is(err, ErrSent) {
		t.Errorf("a batch that was sent: %v", err)
	}
	_, err = r.relay(r.parcels(3, "c", "z"))
	r.must(err)
}

// A batch is put in as a whole, whatever the queue's length. The relay asks for room before.
func TestRelayFull(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	if _, limited, err := r.Room(bg); limited || err != nil {
		t.Errorf("a queue without a maximum is limited: %v, %v", limited, err)
	}
	r.must(r.rdb.HSet(bg, r.keys.Settings, "max_length", "3").Err())
	r.put("a")
	if room, limited, err := r.Room(bg); room != 2 || !limited || err != nil {
		t.Errorf("room %d, %v, %v", room, limited, err)
	}
	// A batch goes in as a whole or not at all: a call that is refused leaves nothing, not even the lane, so that the same batch may come again.
	full := func(b Batch, room int64) {
		t.Helper()
		before := r.dump()
		_, err := r.relay(b)
		var got *NoRoomError
		if !errors.As(err, &got) || got.Room != room {
			t.Errorf("a batch of %d jobs: %v, want a NoRoomError of %d", len(b.Items), err, room)
		}
		r.unchanged("a batch that finds no room", before)
	}
	batch := r.parcels(1, "a", "x", "y", "z")
	full(batch, 2)
	if len(r.claim(1)) != 1 {
		t.Fatal("the job isn't there")
	}
	full(batch, 2) // one that runs still counts
	met := r.parcels(1, "a", "a", "x", "y")
	got, err := r.relay(met) // two need room, and the third is there already
	r.must(err)
	same(t, "outcomes", got, "011")
	got, err = r.relay(met) // as after a lost reply: the same answer, though the queue is full
	r.must(err)
	same(t, "outcomes", got, "011")
	next := r.parcels(2, "b", "v", "w")
	full(next, 0)
	next.Again = true // Redis had it, and has lost it
	got, err = r.relay(next)
	r.must(err)
	same(t, "outcomes", got, "11")
	full(r.parcels(3, "c", "t"), -2)
}

// The order of batches is the order of a group's jobs.
func TestRelayGroups(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	want := []string{}
	for seq := range int64(3) {
		b := r.parcels(seq+1, string(rune('a'+seq)))
		for i := range 3 {
			id := fmt.Sprint(seq, "-", i)
			want = append(want, id)
			b.Items = append(b.Items, r.grouped(id, "sa", When{}, 0))
		}
		_, err := r.relay(b)
		r.must(err)
	}
	var got []string
	for range want {
		d := r.claim(1)
		got = append(got, ids(d)...)
		r.settle(settlement(d[0], Completed))
	}
	equal(t, "order", got, want)
}

// Nonsense is refused before the first write.
func TestRelayRefuses(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.put("a")
	before := r.dump()
	keys := scripts.Relay.Keys(&r.keys, r.keys.Outbox("box", 3))
	job := []any{"id", "1", "", "\x0a\x01k"}
	for _, call := range []string{
		"", "1", "1 1", "1 1 a", "1 1 a 0 0", "1 1 a 0 0 x", "1 1 a 0 0 n", "1 1 av 0 0 p", "1 1 a 1 a p", "1 1 a 2 b p", "1 1 A 0 0 p", "1 1 a! 0 0 p", "1 1  0 0 p", "1 1 a 0 0 v", "1 x a 0 0 p", "1 1e3 a 0 0 p",
		"1 1234567890123456 a 0 0 p", "1000 1 a 0 0 p", "1 1 " + strings.Repeat("a", 65) + " 0 0 p", "1 1 a 0 " + strings.Repeat("a", 66) + " p",
	} {
		if _, err := r.rdb.Eval(bg, scripts.Sources()["relay"], keys, append([]any{call}, job...)...).Result(); err == nil || !strings.Contains(err.Error(), "ERR signalbox: ") {
			t.Errorf("%q: %v", call, err)
		}
	}
	if _, err := r.rdb.Eval(bg, scripts.Sources()["relay"], keys, "1 1 a 0 0 p").Result(); err == nil {
		t.Error("a batch without jobs is put in")
	}
	r.unchanged("nonsense", before)
	r.must(r.rdb.Set(bg, r.keys.Outbox("box", 3), "nonsense", 0).Err())
	if _, err := r.relay(r.parcels(1, "a", "x")); err == nil || !strings.Contains(err.Error(), "lane") {
		t.Errorf("a lane with another text: %v", err)
	}
	if _, err := r.Outboxes().Relayed(bg, "box", 3); err == nil {
		t.Error("a lane with another text can be read")
	}
	r.must(r.rdb.Del(bg, r.keys.Outbox("box", 3)).Err())
	if _, err := r.relay(Batch{Items: make([]Item, MaxBatch+1)}); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("too many jobs: %v", err)
	}
}

// Of all that relay.lua can reply as an error, a job is the cause of what is marked here, and of nothing else.
func TestRelayErrors(t *testing.T) {
	t.Parallel()
	ofJob := map[string]bool{
		// Of the script itself. A reply that isn't here is one that somebody has to decide about.
		"the arguments are not those of a batch of 1 to 1000 jobs":                                         false, // a bug of this package
		"the lane of the outbox has a text that is not its own: is another program writing to this queue?": false,
		"the id, the class or the time of job ":                                                            true,
		"an id has other characters than printable ASCII without spaces and braces":                        true,
		"the last tick of a cron entry is no number: is another program writing to this queue?":            false,
		"LAYOUT ": false,
		"NOPERM signalbox: the Redis user may not run ": false,
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:invalid|error_reply)\('([^']*)'`).FindAllStringSubmatch(scripts.Sources()["relay"], -1) {
		if m[1] == "ERR signalbox: " { // of invalid itself
			continue
		}
		if _, known := ofJob[m[1]]; !known {
			t.Errorf("is %q about a job?", m[1])
		}
		found[m[1]] = true
	}
	for text := range ofJob {
		if !found[text] {
			t.Errorf("relay.lua doesn't reply %q", text)
		}
	}
	replies := map[string]bool{
		// Of Redis, and of Lua.
		"OOM command not allowed when used memory > 'maxmemory'. script: abc, on @user_script:1.":               false,
		"READONLY You can't write against a read only replica.":                                                 false,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.":      false,
		"WRONGTYPE Operation against a key holding the wrong kind of value script: abc, on @user_script:1.":     false,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                      false,
		"NOAUTH Authentication required.":                                                                       false,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":                false,
		"NOREPLICAS Not enough good replicas to write.":                                                         false,
		"LOADING Redis is loading the dataset in memory":                                                        false,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                      false,
		"CLUSTERDOWN The cluster is down":                                                                       false,
		"CROSSSLOT Keys in request don't hash to the same slot":                                                 false,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                               false,
		"NOSCRIPT No matching script. Please use EVAL.":                                                         false,
		"ERR max number of clients reached":                                                                     false,
		"ERR user_script:12: too many results to unpack script: abc, on @user_script:12.":                       false,
		"ERR Error running script (call to f_abc): @user_script:1: user_script:1: attempt to index a nil value": false,
		"ERR Error compiling script (new function): user_script:1: unexpected symbol":                           false,
		"ERR Script killed by user with SCRIPT KILL... script: abc, on @user_script:1.":                         false,
		"LAYOUT 7 signalbox: the layout of the queue is newer than protocol 5":                                  false,
		"ERR something new that says job 3":                                                                     false,
	}
	for text, is := range ofJob {
		if !strings.HasPrefix(text, "LAYOUT") && !strings.HasPrefix(text, "NOPERM") {
			replies["ERR signalbox: "+text] = is
			replies["signalbox: "+text] = is // go-redis may take ERR away
		}
	}
	for text, want := range replies {
		err := jobError(layout.ErrorOf(anError(text)))
		if got := (*JobError)(nil); errors.As(err, &got) != want {
			t.Errorf("%q is about a job: %v, want %v", text, !want, want)
		}
	}
}

// anError is an error that Redis replies.
type anError string

func (e anError) Error() string { return string(e) }
func (anError) RedisError()     {}

// Whatever bytes a row has: what Go lets pass is put in, or relay.lua says that the job is the cause. So no row can stop the others for ever.
func TestRelayOddRows(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	random := rand.New(rand.NewPCG(1, 2))
	lane, refused, sent := Place{}, 0, 0
	for n := range 3000 {
		class := []byte{"012"[random.IntN(3)]}
		for _, mark := range []string{"!", "~", "*", "12", "99999999999999999999"} {
			if random.IntN(6) == 0 {
				class = append(class, mark...)
			}
		}
		if random.IntN(4) > 0 {
			class = append(class, '+', byte(random.IntN(32)))
			if random.IntN(2) == 0 { // a group, as it should be but for what comes next
				class = append(class, 2, 's', 'a')
			}
			for range random.IntN(24) {
				class = append(class, byte(random.IntN(256))>>random.IntN(8))
			}
		}
		p := Parcel{ID: fmt.Sprint("id", n%100), Class: class, Envelope: []byte("\x0a\x01k")}
		if random.IntN(3) == 0 {
			p.Due = time.UnixMicro(random.Int64())
		}
		item, err := p.Item(time.Duration(random.IntN(2)) * time.Hour)
		if err != nil {
			continue
		}
		place := Place{int64(n + 1), "a"}
		_, err = r.relay(Batch{Place: place, After: lane, Items: []Item{item}})
		var job *JobError
		switch {
		case err == nil:
			lane = place
			sent++
		case errors.As(err, &job):
			refused++
		default:
			t.Fatalf("class %q, due %v: %v", class, p.Due, err)
		}
	}
	if sent < 100 || refused < 100 {
		t.Errorf("%d were sent, and %d refused", sent, refused)
	}
}

// A job that waits in a database has less time left to start, and 1 µs at least.
func TestParcel(t *testing.T) {
	t.Parallel()
	job := &signalbox.Job{ID: "a", Kind: "k", Payload: []byte("1"), ExpireAfter: time.Minute, Retain: time.Hour, Group: "g", MaxAttempts: 3}
	item, err := NewItem(job, When{At: time.UnixMicro(1_000_000)})
	if err != nil {
		t.Fatal(err)
	}
	item.Unique(Unique{Key: UniqueKey("k", "u", false), Scope: UntilEnded})
	p, err := item.Parcel()
	if err != nil {
		t.Fatal(err)
	}
	for late, left := range map[time.Duration]time.Duration{0: time.Minute, 20 * time.Second: 40 * time.Second, time.Hour: time.Microsecond} {
		got, err := p.Item(late)
		if err != nil {
			t.Fatal(err)
		}
		job.ExpireAfter = left
		want, err := NewItem(job, When{At: time.UnixMicro(1_000_000)})
		if err != nil {
			t.Fatal(err)
		}
		want.Unique(Unique{Key: UniqueKey("k", "u", false), Scope: UntilEnded})
		if !got.Equal(&want) || got.special != want.special {
			t.Errorf("%v late: got %+v, want %+v", late, got, want)
		}
	}
	if item, err = NewItem(job, When{After: time.Second}); err == nil {
		_, err = item.Parcel()
	}
	if !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("a delay: %v", err)
	}
}

// What is wrong with a parcel is found before it is sent, and the error doesn't quote it.
func TestParcelIsChecked(t *testing.T) {
	t.Parallel()
	good := Parcel{ID: "a", Class: []byte("1"), Envelope: []byte("\x0a\x01k")}
	if _, err := good.Item(0); err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]func(*Parcel){
		"job ID":   func(p *Parcel) { p.ID = "secret word" },
		"no ID":    func(p *Parcel) { p.ID = "" },
		"class":    func(p *Parcel) { p.Class = []byte("3") },
		"no class": func(p *Parcel) { p.Class = nil },
		"marks":    func(p *Parcel) { p.Class = []byte("1?secret") },
		"extras":   func(p *Parcel) { p.Class = append([]byte("1+"), make([]byte, 2000)...) },
		"payload":  func(p *Parcel) { p.Envelope = make([]byte, 2<<20) },
		"envelope": func(p *Parcel) { p.Envelope = []byte("secret") },
		"no kind":  func(p *Parcel) { p.Envelope = nil },
	} {
		p := good
		bad(&p)
		if _, err := p.Item(0); !errors.Is(err, signalbox.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestIfAbsentTwice(t *testing.T) {
	t.Parallel()
	once, err := NewItem(&signalbox.Job{ID: "a", Kind: "k", Group: "g"}, When{})
	if err != nil {
		t.Fatal(err)
	}
	once.IfAbsent()
	twice := once
	twice.IfAbsent()
	if !twice.Equal(&once) {
		t.Errorf("%q, and said twice %q", once.class, twice.class)
	}
}
