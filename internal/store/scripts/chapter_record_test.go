package scripts

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A recordVector is one of internal/wire/testdata/extras.txt.
type recordVector struct {
	name   string
	record string

	Header   bool   `json:"header"`
	Class    string `json:"class"`
	Due      int64  `json:"due"`
	Retain   *int64 `json:"retain"`
	Expire   *int64 `json:"expire"`
	Deadline int64  `json:"deadline"`
	Started  bool   `json:"started"`
	Group    string `json:"group"`
	Scope    string `json:"scope"`
	Unique   string `json:"unique"`
	Window   int64  `json:"window"`
	Survived int64  `json:"survived"`
	Ran      int64  `json:"ran"`
	Links    string `json:"links"`
}

func recordVectors(t *testing.T) (all []recordVector) {
	t.Helper()
	text, err := os.ReadFile("../../wire/testdata/extras.txt")
	if err != nil {
		t.Fatal(err)
	}
	var v recordVector
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSpace(line); {
		case line == "" || line == "#":
		case strings.HasPrefix(line, "# "):
			v = recordVector{name: line[2:]}
		case strings.HasPrefix(line, "{"):
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatalf("%s: %v", v.name, err)
			}
			all = append(all, v)
		default:
			b, err := hex.DecodeString(strings.ReplaceAll(line, " ", ""))
			if err != nil {
				t.Fatalf("%s: %v", v.name, err)
			}
			v.record = string(b)
		}
	}
	return all
}

// readRecords shows everything that the chapter record reads in records. Of one without a header nothing is read but what says that.
const readRecords = `
for _, record in ipairs(given) do
  local scope, key, window = unique_of(record)
  if has_header(record) then
    show(class_of(record), due_of(record), own_age(record), (expiry_of(record)), group_of(record), scope, key, window, (links_of(record)), past_of(record))
  else
    show(class_of(record), own_age(record), (expiry_of(record)), group_of(record), scope)
  end
end`

// shows returns what readRecords shows of the record.
func (v *recordVector) shows() string {
	if !v.Header {
		return shown("1", nil, nil, nil, nil)
	}
	var retain, expires, group, scope, key, window, links any
	if v.Retain != nil {
		retain = *v.Retain
	}
	if v.Expire != nil && *v.Expire > 0 {
		expires = min(v.Due+*v.Expire, 1<<53-1)
	}
	if v.Deadline > 0 && !v.Started && v.Due < 1<<53 {
		expires = v.Deadline
	}
	if v.Group != "" {
		group = v.Group
	}
	if v.Scope != "" {
		scope, key = v.Scope, v.Unique
	}
	if v.Scope == "w" || v.Scope == "t" {
		window = v.Window
	}
	if v.Links != "" {
		links = v.Links
	}
	return shown(v.Class, v.Due, retain, expires, group, scope, key, window, links, v.Survived, v.Ran)
}

// What the scripts read in a record is what testdata/extras.txt of package wire says of it. Go is tested against the same file there.
func TestRecordVectors(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	all := recordVectors(t)
	records := make([]any, len(all))
	for i, v := range all {
		records[i] = v.record
	}
	for i, got := range c.Run(readRecords, records...) {
		if want := all[i].shows(); got != want {
			t.Errorf("%s: the scripts read\n %s, want\n %s", all[i].name, got, want)
		}
	}
}

// ofGo returns what Go reads in a record, in the form of readRecords. What Go doesn't read is taken from got.
func ofGo(record string, got string) string {
	fields := strings.Fields(got)
	b := []byte(record)
	v := recordVector{Header: len(fields) > 5}
	if !v.Header {
		return v.shows()
	}
	v.Class = strings.Trim(fields[0], `"`)
	_, _ = fmt.Sscan(fields[1], &v.Due)
	_, _ = fmt.Sscan(fields[len(fields)-1], &v.Ran)
	switch age := wire.RetainOf(b); {
	case age < 0:
		v.Retain = new(int64)
	case age > 0:
		us := age.Microseconds()
		v.Retain = &us
	}
	if after := wire.ExpiresOf(b).Microseconds(); after > 0 && v.Due < 1<<53 {
		v.Expire = &after
	}
	if at, started := wire.DeadlineOf(b); !at.IsZero() {
		v.Deadline, v.Started = at.UnixMicro(), started
	}
	if key, serial := wire.GroupOf(b); key != "" {
		v.Group = map[bool]string{true: "s", false: "g"}[serial] + key
	} else if fields[4] == `"g{}"` {
		v.Group = "g{}" // that of jobs without a group that expire: Go tells nobody
	}
	if u := wire.UniqueOf(b); u.Scope != 0 {
		v.Scope, v.Unique, v.Window = string(u.Scope), u.Key, u.Window.Microseconds()
	}
	v.Survived, v.Links = int64(wire.SurvivedOf(b)), wire.LinksOf(b)
	return v.shows()
}

// Whatever bytes a record has: the scripts read it without an error, and as Go does.
func TestRecordsOfRandomBytes(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	vectors := recordVectors(t)
	for range 5 {
		records := make([]any, 1000)
		for i := range records {
			b := []byte(vectors[random.IntN(len(vectors))].record)
			for range random.IntN(4) {
				if len(b) > 0 {
					at := random.IntN(len(b))
					b[at] = byte(random.IntN(256))
					if random.IntN(2) == 0 {
						b[at] &= 63
					}
				}
			}
			if len(b) > 13 { // a due time that is exact as a double, or nearly
				b[12], b[13] = 0, b[13]&63
			}
			records[i] = string(b[:len(b)-random.IntN(1+min(len(b), random.IntN(12)))])
		}
		for i, got := range c.Run(readRecords, records...) {
			if want := ofGo(records[i].(string), got); got != want {
				t.Errorf("seed %d: of %x the scripts read\n %s, Go reads\n %s", seed, records[i], got, want)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// What the scripts write into a record is what they, and Go, read there, and all else stays as it is.
func TestChapterRecordWrites(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	vectors := recordVectors(t)
	var records []any
	for _, v := range vectors {
		records = append(records, v.record)
	}
	for i, got := range c.Run(`
for _, record in ipairs(given) do
  if has_header(record) and extras_of(record) then
    local with = with_past(record, 7, 4294967295)
    local lived, ms = past_of(with)
    local without = with_past(with)
    local back = string.byte(record, 4) % 64 >= 32 and record == with_past(without, past_of(record)) or record == without
    local due = redue(record, 1750000000000001)
    show(lived, ms, past_of(without), back, due_of(due), #due - #record, string.sub(due, 1, 12) .. string.sub(due, 21) == string.sub(record, 1, 12) .. string.sub(record, 21))
  else
    show(has_header(record) and with_past(record, 7, 1) == record or redue(record, 5) == record)
  end
end`, records...) {
		v := vectors[i]
		if strings.HasPrefix(v.name, "all flags, the extras end after ") && v.Survived == 0 {
			continue // what was cut off isn't put back
		}
		if want := shown(7, 4294967295, 0, true, 1750000000000001, 0, true); got != want && got != "true" {
			t.Errorf("%s: %s, want %s", v.name, got, want)
		}
	}

	// A job's end and its crashes.
	made := string(wire.AppendRecord(nil, &signalbox.Job{Kind: "k", Group: "a", EnqueuedAt: time.UnixMicro(1), ScheduledAt: time.UnixMicro(2)}))
	c.shows("local r = "+luaString(made)+`
show(select(2, crash(r, 0, 0, 1000)))
show(select(2, crash(crash(r, 0, 0, 1000), 0, 5000000, 1000)))
local twice = crash(crash(r, 0, 0, 1000), 4999000, 5000000, 1000)
show(past_of(twice))
show(crash(twice, 4999000, 5000500, 1000) ~= twice, select(2, crash(twice, 4999000, 5000500, 1000)))
local other = crash(twice, 6000000, 6001000, 1000)
show(select(2, crash(twice, 6000000, 6001000, 1000)), past_of(other))
show(select(2, crash(other, 6000000, 6001000, 1000)))
show(select(2, crash(string.sub(r, 1, 2) .. '\255' .. string.sub(r, 4), 0, 0, 1000)))
show(crash('x', 0, 0, 1))
local again = rerun(other, 9, true)
show(class_of(again), due_of(again), (past_of(again)), again == redue(r, 9) .. '\32\0', rerun(other, 9) == redue(other, 9))`,
		shown(1), shown(2), shown(0, 5000), shown(true, 3), shown(2, 0, 0), shown(3), shown(255), shown("x", false),
		shown("1", 9, 0, true, true))
}
