package wire

import (
	"bytes"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

func TestRetain(t *testing.T) {
	t.Parallel()
	for given, want := range map[time.Duration]time.Duration{
		0:                    0,
		signalbox.RetainNone: signalbox.RetainNone,
		-time.Hour:           signalbox.RetainNone,
		1:                    time.Microsecond, // not none
		time.Hour + 1:        time.Hour,
		MaxRetain:            MaxRetain,
		math.MaxInt64:        MaxRetain,
	} {
		job := signalbox.Job{Kind: "k", Payload: []byte("p"), Retain: given}
		record := AppendRecord(nil, &job)
		var got signalbox.Job
		if err := Decode(record, &got); err != nil || got.Retain != want || string(got.Payload) != "p" {
			t.Errorf("%v: %v for %q, %v; want %v", given, got.Retain, got.Payload, err, want)
		}
		if given == 0 && (record[flagsAt] != 0 || len(record) != headerLen+len(AppendEnvelope(nil, &job))) {
			t.Errorf("a plain record has extras: %x", record)
		}
		if whole, exact, err := DecodeWhole(record, &got); err != nil || !exact || !bytes.Equal(whole.Record(), AppendRecord(nil, &got)) {
			t.Errorf("%v: the whole record is %+v, %v, %v", given, whole, exact, err)
		}
		for what, change := range map[string]func([]byte) ([]byte, error){
			"failed": func(b []byte) ([]byte, error) { return Fail(b, 2, "e") },
			"edited": Edit{Payload: []byte("q")}.Apply,
			"held":   func(b []byte) ([]byte, error) { return Hold(b, Held{Peer: "q", State: "ready"}) },
		} {
			if changed, err := change(record); err != nil || RetainOf(changed) != want {
				t.Errorf("%v: %v once it is %s, %v; want %v", given, RetainOf(changed), what, err, want)
			}
		}
	}
}

// A record says which group its job is of. What is no key of a group says none.
func TestGroupOf(t *testing.T) {
	t.Parallel()
	for _, job := range []signalbox.Job{
		{Kind: "k", Group: "a"},
		{Kind: "k", Group: "a", Serial: true},
		{Kind: "k", Group: "a", Serial: true, YieldOnRetry: true, Retain: time.Hour},
		{Kind: "k", Group: "s:!+", Retain: time.Hour},
		{Kind: "k", Group: string(bytes.Repeat([]byte("g"), 200)), Serial: true, Retain: signalbox.RetainNone},
	} {
		var got signalbox.Job
		if err := Decode(AppendRecord(nil, &job), &got); err != nil || got.Group != job.Group || got.Serial != job.Serial || got.YieldOnRetry != job.YieldOnRetry || got.Retain != job.Retain {
			t.Errorf("%+v of %+v, %v", got, job, err)
		}
	}
	for _, extras := range []string{"", "\x00", "\x01g", "\x02g", "\x03ga", "\x02ha", "\xffga"} {
		record := appendHead(nil, &signalbox.Job{}, FlagGroup, []byte(extras))
		if key, serial := GroupOf(record); key != "" || serial {
			t.Errorf("%q is of group %q, serial %v", extras, key, serial)
		}
	}
	if record := AppendRecord(nil, &signalbox.Job{Kind: "k", Serial: true}); record[flagsAt] != 0 {
		t.Errorf("a job without a group: %x", record)
	}
}

// The reader passes over a part that a later release puts before, and takes nothing for a time that is cut off.
func TestRetainOf(t *testing.T) {
	t.Parallel()
	hour := "\x00\x00\x00\x00\xd6\x93\xa4\x00"
	for name, c := range map[string]struct {
		flags  byte
		extras string
		want   time.Duration
	}{
		"alone":                 {2, hour, time.Hour},
		"before others":         {2 | 4, hour + "more", time.Hour},
		"none":                  {2, hour[:4] + "\x00\x00\x00\x00", signalbox.RetainNone},
		"behind a group":        {1 | 2, "\x05g:abc" + hour, time.Hour},
		"behind an empty group": {1 | 2, "\x00" + hour, time.Hour},
		"no flag":               {4, hour, 0},
		"cut off":               {2, hour[:7], 0},
		"cut off by the group":  {1 | 2, "\x01g" + hour[:7], 0},
		"inside the group":      {1 | 2, "\xffg" + hour, 0},
		"nothing":               {1 | 2, "", 0},
		"too long":              {2, "\xff\xff\xff\xff\xff\xff\xff\xff", MaxRetain},
	} {
		for _, version := range []byte{1, 0x1f} {
			record := appendHead(nil, &signalbox.Job{}, c.flags, []byte(c.extras))
			record[0] = version
			if got := RetainOf(append(record, "envelope"...)); got != c.want {
				t.Errorf("%s, version %d: %v, want %v", name, version, got, c.want)
			}
		}
	}
	good := AppendRecord(nil, &signalbox.Job{Kind: "k", Retain: time.Hour})
	for i := range headerLen + 2 + retainLen {
		if got := RetainOf(good[:i]); got != 0 {
			t.Errorf("the first %d bytes: %v", i, got)
		}
	}
	for i, odd := range map[int]byte{0: 0x20, 1: '3'} {
		bad := bytes.Clone(good)
		if bad[i] = odd; RetainOf(bad) != 0 {
			t.Errorf("%x has no header, and %v", bad, RetainOf(bad))
		}
	}
	var job signalbox.Job
	if err := Decode(append(good, 0xff), &job); err == nil || job.Retain != time.Hour || !reflect.DeepEqual(job.Payload, []byte(nil)) {
		t.Errorf("of a corrupt envelope: %v, %v", job.Retain, err)
	}
}

// A key, and less time, change nothing of the parts around theirs, also of such as a later release puts behind them.
func TestChangesOfExtras(t *testing.T) {
	t.Parallel()
	hour := "\x00\x00\x00\x00\xd6\x93\xa4\x00"
	u := Unique{Key: "k a", Scope: UntilEnded}
	part := string(appendUnique(nil, u))
	for _, group := range []string{"", "\x02ga"} {
		for _, retain := range []string{"", hour} {
			for _, expires := range []string{"", hour} {
				for _, more := range []string{"", "later"} {
					flags := bit(group, FlagGroup) | bit(retain, flagRetain) | bit(expires, FlagExpires)
					all, extras := WithUnique(nil, flags, []byte(group+retain+expires+more), u)
					if want := group + retain + part + expires + more; all != flags|FlagUnique || string(extras) != want {
						t.Errorf("%q, %q, %q, %q: flags %d, extras %q, want %q", group, retain, expires, more, all, extras, want)
					}
					Shorten(all, extras, time.Minute)
					less := "\x00\x00\x00\x00\xd3\x00\x1d\x00"
					if expires == "" {
						less = ""
					}
					if want := group + retain + part + less + more; string(extras) != want {
						t.Errorf("%q, %q, %q, %q: with less time %q, want %q", group, retain, expires, more, extras, want)
					}
				}
			}
		}
	}
}

// A deadline is a point in time: no time is taken off it.
func TestShortenLeavesDeadlines(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1750003600000000)
	job := signalbox.Job{Kind: "k", Deadline: at}
	flags, extras := Extras(&job)
	Shorten(flags, extras, time.Hour)
	if got, started := DeadlineOf(appendHead(nil, &job, flags, extras)); !got.Equal(at) || started {
		t.Errorf("it is %v, started: %v; want %v", got, started, at)
	}
}

// bit returns the flag if the part is there.
func bit(part string, flag byte) byte {
	if part == "" {
		return 0
	}
	return flag
}
