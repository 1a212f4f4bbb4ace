package web_test

import (
	"encoding/csv"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/web"
)

// table returns the rows of a page's list by the names of its columns: from its CSV, after it was compared with its JSON.
func table(t *testing.T, h http.Handler, path string) []map[string]string {
	t.Helper()
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	status, header, text := get(t, h, path+sep+"as=csv")
	if status != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/csv") || !strings.HasPrefix(header.Get("Content-Disposition"), `attachment; filename="signalbox-`) || header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s: %d, %v, %s", path, status, header, text)
	}
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	status, header, text = get(t, h, path+sep+"as=json")
	var objects []map[string]any
	if err := json.Unmarshal([]byte(text), &objects); err != nil || status != http.StatusOK || header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s: %d, %v, %v, %s", path, status, header, err, text)
	}
	var rows []map[string]string
	for _, record := range records[1:] {
		row := map[string]string{}
		for i, cell := range record {
			row[records[0][i]] = cell
		}
		rows = append(rows, row)
	}
	if len(objects) != len(rows) {
		t.Errorf("%s: %d objects, %d rows", path, len(objects), len(rows))
	}
	for _, o := range objects {
		if keys := slices.Sorted(maps.Keys(o)); !slices.Equal(keys, slices.Sorted(slices.Values(records[0]))) {
			t.Errorf("%s: JSON has %v, CSV %v", path, keys, records[0])
		}
	}
	return rows
}

// Each list is a file, too, with what the page shows.
func TestFiles(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := newStage(t, rdb)
	s.queue("mail", "w").states("k", "acme", "boom 503", signalbox.Job{Payload: []byte(`"ARGUMENT-SECRET"`), Headers: map[string]string{"h": "HEADER-SECRET"}})
	s.entry("mail", "digest", "0 3 1 1 *")
	locker, err := lock.New(rdb, lock.Config{TTL: time.Hour, Owner: "me"})
	s.must(err)
	held, err := locker.TryAcquire(t.Context(), s.namespace+"-ledger")
	s.must(err)
	t.Cleanup(func() { _ = held.Release(t.Context()) })
	h := s.pages(web.Config{Show: func(*http.Request) bool { return true }})
	for path, want := range map[string]map[string]string{
		"/":                                   {"queue": "mail", "ready": "1", "dead": "1", "running": "1"},
		"/jobs?queue=mail&state=dead":         {"queue": "mail", "id": "dead", "kind": "k", "state": "dead", "failed": "1", "last_error": "boom 503"},
		"/jobs?queue=mail&state=ready":        {"id": "ready", "group": "acme", "ended_at": ""},
		"/job?queue=mail&id=dead":             {"id": "dead", "number": "1", "outcome": "failed", "worker": "w"},
		"/job?queue=mail&id=running":          {"outcome": "runs", "ended_at": ""},
		"/workers":                            {"worker": "w", "queue": "mail", "running": "1", "stuck": "0", "quiet": "false"},
		"/cron":                               {"queue": "mail", "entry": "digest", "spec": "0 3 1 1 *", "zone": "UTC", "paused_since": ""},
		"/groups?queue=mail":                  {"group": "acme", "waiting": "1", "serial": "false"},
		"/locks?key=" + s.namespace + "-*":    {"key": s.namespace + "-ledger", "owner": "me"},
		"/queue?name=mail":                    {"queue": "mail"},
		"/queue?name=mail&over=month":         {"queue": "mail"},
		"/jobs?queue=mail&state=dead&error=5": {"id": "dead"},
	} {
		rows := table(t, h, path)
		if len(rows) == 0 {
			t.Errorf("%s: no row", path)
			continue
		}
		for column, value := range want {
			if got, ok := rows[0][column]; !ok || got != value && !(column == "worker" && strings.Contains(got, "w")) {
				t.Errorf("%s: %s is %q, want %q", path, column, got, value)
			}
		}
		if _, _, body := get(t, h, path); strings.Count(body, "as=csv") != 1 || strings.Count(body, "as=json") != 1 {
			t.Errorf("%s has no links to its files", path)
		}
	}
	if rows := table(t, h, "/doctor?queue=mail&look=yes"); len(rows) != 0 {
		t.Errorf("findings of the doctor: %v", rows)
	}
	for path, want := range map[string]int{"/?as=xml": 400, "/jobs?as=csv": 400, "/locks?as=csv": 400, "/doctor?as=json": 400, "/queue?name=none&as=csv": 404, "/nothing?as=csv": 404} {
		if status, _, body := get(t, h, path); status != want {
			t.Errorf("%s: %d, %s", path, status, body)
		}
	}
}

// A text in a file is never a formula, and no user's file has another's data.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	hostile(s)
	p := s.queue("mail", "w")
	ids := []string{"=1+1", "+1", "-1", "@SUM(A1)", `"=1+1`, "'=1", `"'"@x`}
	for _, id := range ids {
		p.put(signalbox.Job{ID: id, Kind: "=cmd|'/C'!A0", MaxAttempts: 1}, store.When{After: time.Hour})
	}
	s.queue("covert", "shared").states("covert-kind", "covert-group", "covert error", signalbox.Job{Payload: []byte(`"SECRET"`), Headers: map[string]string{"h": "SECRET"}})
	all := s.pages(web.Config{})
	for _, row := range table(t, all, "/jobs?queue=mail&state=scheduled") {
		if !strings.HasPrefix(row["id"], "'") || !strings.HasPrefix(row["kind"], "'=") || !slices.Contains(ids, row["id"][1:]) {
			t.Errorf("a formula: %v", row)
		}
	}
	for _, page := range []string{"/", "/workers", "/jobs?" + url.Values{"queue": {hostileName}, "state": {"dead"}}.Encode(), "/job?" + url.Values{"queue": {hostileName}, "id": {"dead"}}.Encode()} {
		for _, row := range table(t, all, page) {
			for column, cell := range row {
				if strings.ContainsAny(cell, "\x00\r\n\u202e\u2066") || len(cell) > 20_000 || strings.Contains(cell, "SECRET") {
					t.Errorf("%s: %s has %.200q", page, column, cell)
				}
			}
		}
	}
	mine := s.pages(web.Config{Queues: func(*http.Request) web.Scope {
		return web.Scope{Queue: func(name string) bool { return name == "mail" }}
	}})
	for _, page := range []string{"/", "/workers", "/cron", "/jobs?queue=mail&state=scheduled", "/groups?queue=mail", "/queue?name=mail"} {
		for _, row := range table(t, mine, page) {
			for column, cell := range row {
				if strings.Contains(cell, "covert") || column == "queue" && cell != "mail" {
					t.Errorf("%s: %s has %q", page, column, cell)
				}
			}
		}
	}
	for _, page := range []string{"/queue?name=covert&as=csv", "/jobs?queue=covert&state=dead&as=csv", "/job?queue=covert&id=dead&as=json", "/groups?queue=covert&as=csv", "/locks?key=*&as=csv", "/doctor?queue=covert&look=yes&as=csv"} {
		if status, _, body := get(t, mine, page); status != http.StatusNotFound || strings.Contains(body, "covert-") {
			t.Errorf("%s: %d", page, status)
		}
	}
}

// While Redis is away there is no file: it could not say how old it is.
func TestNoFileWithoutRedis(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	s := newStage(t, proxy.Client())
	s.queue("mail", "w")
	h := s.pages(web.Config{})
	table(t, h, "/")
	proxy.Refuse(true)
	proxy.Sever()
	redistest.Eventually(t, func() bool {
		status, header, _ := get(t, h, "/?as=csv")
		return status == http.StatusServiceUnavailable && strings.HasPrefix(header.Get("Content-Type"), "text/html")
	}, "the file is refused")
}
