package web

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// mostCell is how many characters of a text a file has in a cell.
const mostCell = 4000

// A sheet is the list of a page, for programs: times are in UTC, and durations in seconds.
type sheet struct {
	name    string // of its file; no text of a user
	columns []string
	rows    [][]any // each has nil, or a bool, an int, an int64, a float64, a string, a time.Time or a time.Duration for each column
}

// add adds a row.
func (s *sheet) add(cells ...any) { s.rows = append(s.rows, cells) }

// file returns the sheet as a file.
func (s *sheet) file(as string) (*file, error) {
	switch as {
	case "csv":
		return &file{"text/csv; charset=utf-8; header=present", "signalbox-" + s.name + ".csv", s.csv()}, nil
	case "json":
		return &file{"application/json", "signalbox-" + s.name + ".json", s.json()}, nil
	}
	return nil, mistake("There is no such kind of file: want csv or json.")
}

// csv returns the sheet as RFC 4180 has it. A text that a spreadsheet would take for a formula has an apostrophe in front of it.
func (s *sheet) csv() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	_ = w.Write(s.columns) // a buffer takes all
	for _, row := range s.rows {
		cells := make([]string, len(row))
		for i, c := range row {
			switch c := plain(c).(type) {
			case string:
				if cells[i] = c; strings.IndexAny(strings.TrimLeft(c, " '\""), "=+-@") == 0 {
					cells[i] = "'" + c
				}
			case int64:
				cells[i] = strconv.FormatInt(c, 10)
			case float64:
				cells[i] = strconv.FormatFloat(c, 'f', -1, 64)
			case bool:
				cells[i] = strconv.FormatBool(c)
			}
		}
		_ = w.Write(cells)
	}
	w.Flush()
	return b.Bytes()
}

// json returns the sheet as a list of objects.
func (s *sheet) json() []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, row := range s.rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n{")
		for k, c := range row {
			if k > 0 {
				b.WriteByte(',')
			}
			value, err := json.Marshal(plain(c))
			if err != nil {
				value = []byte("null") // a number that is none
			}
			b.WriteString(strconv.Quote(s.columns[k]) + ":")
			b.Write(value)
		}
		b.WriteByte('}')
	}
	b.WriteString("\n]\n")
	return b.Bytes()
}

// plain returns a cell as nil, a bool, an int64, a float64 or a string.
func plain(c any) any {
	switch c := c.(type) {
	case int:
		return int64(c)
	case time.Duration:
		return c.Seconds()
	case time.Time:
		if c.IsZero() {
			return nil
		}
		return c.UTC().Format(time.RFC3339Nano)
	case string:
		return clean(c, mostCell)
	}
	return c
}

// file returns the list of a page as a file.
func (v *visit) file(a answer, as string) (answer, error) {
	if v.away != nil {
		return answer{}, v.away // a file doesn't say how old it is
	}
	if a.sheet == nil {
		return answer{}, mistake("This page has no list that can be a file.")
	}
	f, err := a.sheet().file(as)
	return answer{file: f}, err
}

// files returns the links to the list of a page as a file.
func (v *visit) files(a *answer) []act {
	if a.sheet == nil || v.away != nil || v.Method == http.MethodPost {
		return nil
	}
	var list []act
	for _, kind := range []struct{ text, as string }{{"CSV", "csv"}, {"JSON", "json"}} {
		q := maps.Clone(v.URL.Query())
		q.Set("as", kind.as)
		list = append(list, act{kind.text, "./" + v.URL.Path[strings.LastIndexByte(v.URL.Path, '/')+1:] + "?" + q.Encode()})
	}
	return list
}
