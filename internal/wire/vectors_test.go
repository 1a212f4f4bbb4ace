package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// said is what a record says in its header and its extras, in the form of extras.txt.
type said struct {
	Header   bool   `json:"header"`
	Class    string `json:"class"`
	Crashes  int    `json:"crashes"`
	Due      int64  `json:"due"`
	Retain   *int64 `json:"retain"`
	Expire   int64  `json:"expire"`
	Deadline int64  `json:"deadline"`
	Started  bool   `json:"started"`
	Group    string `json:"group"`
	Yields   bool   `json:"yields"`
	Scope    string `json:"scope"`
	Unique   string `json:"unique"`
	Window   int64  `json:"window"`
	Survived int    `json:"survived"`
	Links    string `json:"links"`
	Written  bool   `json:"written"`
}

// What Go reads in the header and the extras of a record is what testdata/extras.txt says of it. The scripts are tested against the same file, see
// TestRecordVectors in internal/store.
func TestExtrasVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/extras.txt")
	if err != nil {
		t.Fatal(err)
	}
	name, n := "", 0
	var record []byte
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSpace(line); {
		case line == "" || line == "#":
		case strings.HasPrefix(line, "# "):
			name = line[2:]
		case strings.HasPrefix(line, "{"):
			var want said
			if err := json.Unmarshal([]byte(line), &want); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			n++
			want.check(t, name, record)
		default:
			if record, err = hex.DecodeString(strings.ReplaceAll(line, " ", "")); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	if n < 150 {
		t.Errorf("only %d vectors", n)
	}
}

func (want said) check(t *testing.T, name string, record []byte) {
	t.Helper()
	var job signalbox.Job
	head := decodeHead(record, &job)
	if ok := head == nil && record[0] >= version && record[0] < 0x20; ok != want.Header {
		t.Errorf("%s: it has a header: %v, %v", name, ok, head)
	}
	if want.Header {
		class := string(Class(job.Priority))
		if job.Crashes >= 2 {
			class = "s"
		}
		if due := int64(binary.BigEndian.Uint64(record[12:])); class != want.Class || job.Crashes != want.Crashes && want.Class != "s" || due != want.Due {
			t.Errorf("%s: class %s with %d crashes, due at %d", name, class, job.Crashes, due)
		}
	}
	retain := time.Duration(0)
	if want.Retain != nil {
		if retain = time.Duration(*want.Retain) * time.Microsecond; retain == 0 {
			retain = signalbox.RetainNone
		}
	}
	if got := RetainOf(record); got != retain {
		t.Errorf("%s: it is kept for %v, want %v", name, got, retain)
	}
	if got := ExpiresOf(record).Microseconds(); got != want.Expire {
		t.Errorf("%s: it expires after %d us, want %d", name, got, want.Expire)
	}
	deadline, started := DeadlineOf(record)
	if us := micros(deadline); us != uint64(want.Deadline) || started != want.Started {
		t.Errorf("%s: it has the deadline %d us, and has started: %v; want %d, %v", name, us, started, want.Deadline, want.Started)
	}
	if want.Written {
		made := signalbox.Job{
			Kind: "k", EnqueuedAt: job.EnqueuedAt, ScheduledAt: job.ScheduledAt, Retain: retain, ExpireAfter: time.Duration(want.Expire) * time.Microsecond, Deadline: deadline,
			Group: strings.TrimPrefix(strings.TrimLeft(want.Group, "gs"), Unstarted), Serial: strings.HasPrefix(want.Group, "s"), YieldOnRetry: want.Yields,
		}
		if got := AppendRecord(nil, &made); !bytes.Equal(got, record) {
			t.Errorf("%s: a producer writes\n%x, want\n%x", name, got, record)
		}
	}
	key, serial := GroupOf(record)
	if group := strings.TrimPrefix(want.Group, "g{}"); group == "" && key != "" || group != "" && (group[1:] != key || serial != (group[0] == 's')) {
		t.Errorf("%s: it is of group %q, serial %v; want %q", name, key, serial, want.Group)
	}
	if got := YieldsOf(record); got != want.Yields {
		t.Errorf("%s: it yields %v, want %v", name, got, want.Yields)
	}
	wanted := Unique{Key: want.Unique, Window: time.Duration(want.Window) * time.Microsecond}
	if want.Scope != "" {
		wanted.Scope = want.Scope[0]
	}
	if got := UniqueOf(record); got != wanted {
		t.Errorf("%s: it has the unique key %+v, want %+v", name, got, wanted)
	}
	if got := LinksOf(record); got != want.Links {
		t.Errorf("%s: it has the links %q, want %q", name, got, want.Links)
	}
	if without := WithoutLinks(record); len(without) != len(record) || strings.Trim(strings.ReplaceAll(" "+LinksOf(without), " z", ""), " nb{1") != "" || want.Links == "" && !bytes.Equal(without, record) {
		t.Errorf("%s: without links it is\n%x, was\n%x", name, without, record)
	}
	if got := SurvivedOf(record); got != want.Survived {
		t.Errorf("%s: it has survived %d deliveries, want %d", name, got, want.Survived)
	}
}
