package main

import (
	"strconv"
	"strings"
	"testing"
)

// A table keeps within its terminal: it cuts long texts, the last column first, then it leaves columns out. IDs are never cut.
func TestTableFits(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		0: `
			ID        KIND           TRIES  ERROR
			order-17  email.welcome   1/25  the address is gone, 期限切れ
			order-18  report          0/25  -`,
		60: `
			ID        KIND           TRIES  ERROR
			order-17  email.welcome   1/25  the address is gone, 期限切…
			order-18  report          0/25  -`,
		44: `
			ID        KIND           TRIES  ERROR
			order-17  email.welcome   1/25  the address…
			order-18  report          0/25  -`,
		38: `
			ID        KIND       TRIES  ERROR
			order-17  email.we…   1/25  the addre…
			order-18  report      0/25  -`,
		34: `
			ID        KIND          ERROR
			order-17  email.welco…  the addre…
			order-18  report        -`,
		20: `
			ID        KIND      ERROR
			order-17  email.w…  the addre…
			order-18  report    -`,
	} {
		var out strings.Builder
		var notes strings.Builder
		a := &app{out: &out, err: &notes, flush: func() {}, output: "table", width: width}
		table := a.table(column{name: "ID"}, column{name: "KIND", cut: 8}, column{name: "TRIES", right: true, drop: 1}, column{name: "ERROR", cut: 10})
		table.row("order-17", "email.welcome", "1/25", "the address is gone, 期限切れ")
		table.row("order-18", "report", "0/25", "")
		table.flush()
		lines := strings.Split(strings.Trim(want, "\n"), "\n")
		for i := range lines {
			lines[i] = strings.TrimLeft(lines[i], "\t")
		}
		if got := strings.TrimSuffix(out.String(), "\n"); got != strings.Join(lines, "\n") {
			t.Errorf("%d cells: got\n%s\nwant\n%s", width, got, strings.Join(lines, "\n"))
		}
		note := ""
		if !strings.Contains(want, "TRIES") {
			note = "No room for TRIES: a wider terminal, or -o json, has them.\n"
		}
		if notes.String() != note {
			t.Errorf("%d cells: the note %q, want %q", width, notes.String(), note)
		}
		for line := range strings.SplitSeq(out.String(), "\n") {
			if width > 30 && cells(line) > width {
				t.Errorf("%d cells in %d: %s", cells(line), width, line)
			}
		}
	}
}

// A long table is printed page by page, under one heading.
func TestTablePages(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	table := (&app{out: &out}).table(column{name: "N", right: true}, column{name: "TEXT"})
	for i := range pageRows + 1 {
		table.row(strconv.Itoa(i), "x")
		if len(table.rows) >= pageRows {
			t.Fatalf("it holds %d rows", len(table.rows))
		}
	}
	if n := strings.Count(out.String(), "\n"); n != pageRows+1 {
		t.Errorf("%d lines before the end", n)
	}
	table.flush()
	if n := strings.Count(out.String(), "TEXT"); n != 1 || !strings.HasSuffix(out.String(), "\n200  x\n") {
		t.Errorf("%d headings, ends %q", n, out.String()[out.Len()-20:])
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"90s": "1m30s", "30d": "30d", "1d12h": "1d12h", "0s": "0ms", "1.5h": "1h30m", "1500ms": "1s"} {
		d, err := parseSpan(text)
		if err != nil || span(d) != want {
			t.Errorf("%s: %v, %v", text, span(d), err)
		}
	}
	for _, text := range []string{"", "5", "-1h", "d", "1x", "-1d", "99999999d", "1d-1h", "1h1d"} {
		if d, err := parseSpan(text); err == nil {
			t.Errorf("%q is %v", text, d)
		}
	}
	for text, want := range map[string]int64{"7": 7, "64MiB": 64 << 20, "1 GiB": 1 << 30, "3KiB": 3 << 10, "2TiB": 2 << 40} {
		var f bytesFlag
		if err := f.Set(text); err != nil || f.n != want {
			t.Errorf("%s: %d, %v", text, f.n, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "1MB", "9999999999TiB", "1.5GiB"} {
		if err := new(bytesFlag).Set(text); err == nil {
			t.Errorf("%q is right", text)
		}
	}
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1536: "1.5 KiB", 256 << 20: "256 MiB", 5 << 30: "5 GiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
