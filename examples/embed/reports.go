package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"
)

// reports are the files of the reports, a folder for each. They say what was asked for and what is done. Redis says how far the rest
// is: it forgets a job that has completed. A real service has a database in their place.
type reports struct{ *os.Root }

const (
	fileRequest = "request.json"
	fileRows    = "report.csv"
)

func openReports(dir string) (*reports, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &reports{root}, nil
}

// create records what is asked for. If the ID is taken, it returns what was asked for then.
func (r *reports) create(want Report) (Report, error) {
	data, err := json.Marshal(want)
	if err != nil {
		return Report{}, err
	}
	if err := r.MkdirAll(want.ID, 0o755); err != nil {
		return Report{}, err
	}
	draft := want.ID + "/draft-" + rand.Text()
	if err := r.WriteFile(draft, data, 0o644); err != nil {
		return Report{}, err
	}
	defer func() { _ = r.Remove(draft) }()
	if err := r.Link(draft, want.ID+"/"+fileRequest); err == nil || !errors.Is(err, fs.ErrExist) {
		return want, err
	}
	return r.request(want.ID)
}

// request returns what was asked for. The error wraps fs.ErrNotExist if nothing was.
func (r *reports) request(id string) (Report, error) {
	var req Report
	data, err := r.ReadFile(id + "/" + fileRequest)
	if err != nil {
		return req, err
	}
	return req, json.Unmarshal(data, &req)
}

func (r *reports) has(name string) bool {
	_, err := r.Stat(name)
	return err == nil
}

func (r *reports) done(id string) bool        { return r.has(id + "/" + fileRows) }
func (r *reports) hasDay(id, day string) bool { return r.done(id) || r.has(id+"/"+day+".csv") }

func (r *reports) putDay(id, day string, rows []byte) error {
	return r.put(id, day+".csv", rows)
}

// put writes a file, and then gives it its name. So nobody reads half of it.
func (r *reports) put(id, name string, data []byte) error {
	draft := id + "/draft-" + rand.Text()
	if err := r.WriteFile(draft, data, 0o644); err != nil {
		return err
	}
	return r.Rename(draft, id+"/"+name)
}

// finish makes the report of its days.
func (r *reports) finish(in Report) error {
	if r.done(in.ID) {
		return nil
	}
	var whole bytes.Buffer
	for _, day := range in.days() {
		rows, err := r.ReadFile(in.ID + "/" + day + ".csv")
		if err != nil {
			return err
		}
		whole.Write(rows)
	}
	if err := r.put(in.ID, fileRows, whole.Bytes()); err != nil {
		return err
	}
	return r.dropDays(in)
}

// dropDays deletes the days.
func (r *reports) dropDays(in Report) error {
	var errs []error
	for _, day := range in.days() {
		if err := r.Remove(in.ID + "/" + day + ".csv"); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// dropOlder deletes the reports that were asked for before a time.
func (r *reports) dropOlder(before time.Time) error {
	folders, err := fs.ReadDir(r.FS(), ".")
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range folders {
		info, err := r.Stat(f.Name() + "/" + fileRequest)
		if err == nil && info.ModTime().Before(before) {
			errs = append(errs, r.RemoveAll(f.Name()))
		}
	}
	return errors.Join(errs...)
}
