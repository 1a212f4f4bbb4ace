package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// A column of a table.
type column struct {
	name  string
	right bool // numbers
	cut   int  // where there is no room, its texts are cut to as few cells as this. 0: never
	drop  int  // where there still is no room, columns are left out in the order 1, 2, ... 0: never
	hide  bool // it is left out if no row of the first page has a text there
}

// pageRows bounds the rows that a table holds back to find out how wide its columns are.
const pageRows = 200

// A table aligns rows in columns. Where the output is a terminal, it keeps within its width. It holds one page of rows: a list
// of a million jobs takes no more memory than a short one.
type table struct {
	out     io.Writer
	width   int // of the terminal; 0: no bound
	columns []column
	rows    [][]string
	widths  []int // that were printed; later pages may only be wider
	begun   bool
	note    func(format string, args ...any) // writes the line beside the table that names columns without room; nil: nobody reads it
	left    []bool                           // columns that were left out of some page
	hidden  []bool                           // columns that are left out of all pages
}

func (a *app) table(columns ...column) *table {
	return &table{out: a.out, width: a.width, columns: columns, widths: make([]int, len(columns)), left: make([]bool, len(columns)), hidden: make([]bool, len(columns)), note: a.note}
}

// row adds a row of one text for each column.
func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = clean(cells[i])
		if cells[i] == "" {
			cells[i] = "-" // so that programs such as awk see a field there
		}
	}
	t.rows = append(t.rows, cells)
	if len(t.rows) >= pageRows {
		t.page()
	}
}

// flush ends the table: it prints the rows that are left, and says which columns had no room.
func (t *table) flush() {
	t.page()
	var names []string
	for i, left := range t.left {
		if left {
			names = append(names, t.columns[i].name)
		}
	}
	if len(names) > 0 && t.note != nil {
		t.note("No room for %s: a wider terminal, or -o json, has them.", strings.Join(names, ", "))
	}
}

// page prints the rows since the last page, and the heading before the first.
func (t *table) page() {
	for i, c := range t.columns {
		t.widths[i] = max(t.widths[i], cells(c.name))
		for _, row := range t.rows {
			t.widths[i] = max(t.widths[i], cells(row[i]))
		}
	}
	for i, c := range t.columns {
		texts := slices.ContainsFunc(t.rows, func(row []string) bool { return row[i] != "-" })
		if c.hide && !t.begun && !texts {
			t.hidden[i] = true
		}
		t.left[i] = t.left[i] || t.hidden[i] && texts
	}
	widths := t.fit()
	if !t.begun {
		t.begun = true
		names := make([]string, len(t.columns))
		for i, c := range t.columns {
			names[i] = c.name
		}
		t.line(names, widths)
	}
	for _, row := range t.rows {
		t.line(row, widths)
	}
	t.rows = t.rows[:0]
}

// flushRows is flush, but prints nothing where there was no row.
func (t *table) flushRows() {
	if t.begun || len(t.rows) > 0 {
		t.flush()
	}
}

const gap = "  "

// fit returns the widths to print. Columns that are left out have -1.
func (t *table) fit() []int {
	widths := append([]int(nil), t.widths...)
	for i, hidden := range t.hidden {
		if hidden {
			widths[i] = -1
		}
	}
	if t.width <= 0 {
		return widths
	}
	over := func() int {
		sum := -len(gap)
		for _, w := range widths {
			if w >= 0 {
				sum += w + len(gap)
			}
		}
		return sum - t.width
	}
	for i, c := range slices.Backward(t.columns) { // the long texts are last
		if n := over(); n > 0 && c.cut > 0 {
			widths[i] = max(widths[i]-n, min(widths[i], max(c.cut, cells(c.name))))
		}
	}
	for nth := 1; nth <= len(t.columns); nth++ {
		for i, c := range t.columns {
			if over() > 0 && c.drop == nth {
				widths[i], t.left[i] = -1, true
			}
		}
	}
	// What a dropped column has left goes to those that were cut.
	for i := range t.columns {
		if n := -over(); n > 0 && widths[i] >= 0 {
			widths[i] = min(t.widths[i], widths[i]+n)
		}
	}
	return widths
}

func (t *table) line(texts []string, widths []int) {
	var b strings.Builder
	for i, s := range texts {
		if widths[i] < 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(gap)
		}
		s = cut(s, widths[i])
		pad := strings.Repeat(" ", max(0, widths[i]-cells(s)))
		if t.columns[i].right {
			s = pad + s
		} else {
			s += pad
		}
		b.WriteString(s)
	}
	fmt.Fprintln(t.out, strings.TrimRight(b.String(), " "))
}

// cut returns s in at most n cells.
func cut(s string, n int) string {
	if cells(s) <= n {
		return s
	}
	used := 0
	for i, r := range s {
		if used += cellsOf(r); used > n-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// cells returns how many cells of a terminal s takes.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n += cellsOf(r)
	}
	return n
}

func cellsOf(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// clean returns s without anything that a terminal would obey: what handlers and producers wrote is printed, never acted on.
func clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteByte(' ')
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// cleanLines is clean for a text of several lines.
func cleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = clean(strings.ReplaceAll(lines[i], "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// document writes v as one line of JSON.
func (a *app) document(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
