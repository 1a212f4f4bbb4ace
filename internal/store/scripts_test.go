package store

import (
	"bufio"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/settings"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// monitor returns what a server runs from now on, a command a line.
func monitor(t *testing.T, addr string) *bufio.Scanner {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	log := bufio.NewScanner(conn)
	log.Buffer(nil, 1<<20)
	if !log.Scan() || log.Text() != "+OK" {
		t.Fatalf("MONITOR: %q, %v", log.Text(), log.Err())
	}
	return log
}

// What the server sees: each operation touches keys that it declared, and no others.
func TestOnlyDeclaredKeysAreTouched(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	rdb := srv.Client()
	log := monitor(t, srv.Addr())
	for _, op := range slices.Concat(operations(), views()) {
		r := newQueue(t, rdb)
		got := op.furnish(r)
		keys, _ := declared(r, func() error { return op.call(r, got) })
		r.must(rdb.Echo(bg, "begin "+op.name).Err())
		r.must(op.call(r, got))
		r.must(rdb.Echo(bg, "end "+op.name).Err())
		touched := 0
		for inside := false; log.Scan() && !strings.Contains(log.Text(), `"end `+op.name+`"`); {
			inside = inside || strings.Contains(log.Text(), `"begin `+op.name+`"`)
			_, call, lua := strings.Cut(log.Text(), " lua] ")
			if !inside || !lua || call == `"TIME"` || strings.HasPrefix(call, `"PUBLISH"`) || strings.HasPrefix(call, `"SPUBLISH"`) {
				continue
			}
			words := strings.SplitN(call, " ", 3) // "HGET" "key" ...
			key, err := strconv.Unquote(words[1])
			if err != nil || !slices.Contains(keys, key) {
				t.Errorf("%s: %s touches a key that is not declared", op.name, call)
			}
			touched++
		}
		if touched == 0 {
			t.Errorf("%s touches nothing: %v", op.name, log.Err())
		}
	}
}

// What the Go side and the scripts both know.
func TestConstantsAgree(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{
		"record.suspect_at": SuspectAt, "record.alone_at": facts.AloneAt, "record.survived_at": SurvivedAt, "record.largest_possible": wire.MaxRecord,
		"record.due_when_held": wire.HeldUntil.UnixMicro(), "settings.heard_for": settings.HeardFor.Microseconds(), "retention.receipt_age": settings.DefaultRetention.Age.Microseconds(),
	} {
		chapter, constant, _ := strings.Cut(name, ".")
		found := regexp.MustCompile(`(?m)^local ` + constant + ` = (\d+)$`).FindStringSubmatch(fileOf(t, "chapters/"+chapter))
		if found == nil || found[1] != strconv.FormatInt(want, 10) {
			t.Errorf("%s is %q in the scripts, and %d in Go", name, found, want)
		}
	}
}

// The scripts and the Go side have the same table of terminal states.
func TestTerminalStatesAgree(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile(`(\w+) = \{set = (\w+), bytes = '(\w+)', met = '(\w)'\},\n`)
	lua := fileOf(t, "chapters/places")
	rows := row.FindAllStringSubmatch(lua, -1)
	if n := strings.Count(lua, "set = "); len(rows) != n || n != len(facts.EndedStates) {
		t.Fatalf("the script has %d states, of which %d can be read, and Go has %d", n, len(rows), len(facts.EndedStates))
	}
	k := layout.KeysOf("", "q")
	fates := [][2]Fate{{MetDead, ReplacedDead}, {MetCancelled, ReplacedCancelled}, {MetCompleted, ReplacedCompleted}} // of the states in their order
	for i, state := range facts.EndedStates {
		met, replaced := fates[i][0], fates[i][1]
		equal(t, "state", rows[i][1:], []string{string(state), facts.EndedKey(state), facts.EndedBytes(state), string(rune(met))})
		same(t, "the set of "+string(state), k.Named[facts.EndedKey(state)], k.Prefix+string(state))
		same(t, "the outcome of one that is replaced", string(rune(replaced)), strings.ToUpper(string(rune(met))))
		if met.In() || !replaced.In() {
			t.Errorf("%s: is a job in that met one: %v, that replaced one: %v", state, met.In(), replaced.In())
		}
		if !slices.Contains(outcomes, Outcome(state)) {
			t.Errorf("%s is no outcome", state)
		}
	}
}

// fileOf returns the text of a file of the scripts.
func fileOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
