package inspect

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// fileFormat is the version of the files of Export. docs/cli/files.md has the format.
const fileFormat = 1

// A fileHead is the first line of a file.
type fileHead struct {
	Signalbox string       `json:"signalbox"` // "export"
	Format    int          `json:"format"`
	Namespace string       `json:"namespace"`
	Queue     string       `json:"queue"`
	At        string       `json:"at"`
	Settings  fileSettings `json:"settings"`
}

type fileSettings struct {
	Paused     bool  `json:"paused"`
	Slots      int   `json:"slots"`
	KeepJobs   int64 `json:"keep_jobs"`
	KeepBytes  int64 `json:"keep_bytes"`
	KeepMicros int64 `json:"keep_us"`
	// What is kept of completed jobs; 0: nothing.
	KeepCompleted       int64 `json:"keep_completed_jobs"`
	KeepCompletedBytes  int64 `json:"keep_completed_bytes"`
	KeepCompletedMicros int64 `json:"keep_completed_us"`
	// CopyDead is the queue that gets copies of dead jobs; "": there is none.
	CopyDead string `json:"copy_dead"`
	// The limits of the queue, of its groups, and of groups with limits of their own.
	Limits      fileLimits            `json:"limits"`
	GroupLimits fileLimits            `json:"group_limits"`
	LimitsOf    map[string]fileLimits `json:"limits_of,omitempty"`
	// MaxLength is how many jobs the queue may have that haven't ended; 0: any number.
	MaxLength int `json:"max_length,omitempty"`
	// PausedGroups are the keys of groups that are paused, serial or not.
	PausedGroups []string `json:"paused_groups,omitempty"`
	// Applied are the values of workers' Configs that were applied last, by fields as docs/wire.md has them, and AppliedOf those of single groups, by their names.
	Applied   map[string]string `json:"applied,omitempty"`
	AppliedOf map[string]string `json:"applied_of,omitempty"`
}

// fileLimits are limits. 0 for none, and in those of a single group for what all groups have: it has -1 for none.
type fileLimits struct {
	Running int   `json:"running"`
	Jobs    int   `json:"jobs"` // that start in each PerUS
	PerUS   int64 `json:"per_us"`
	Burst   int   `json:"burst"`
}

func limitsToFile(l signalbox.Limits) fileLimits {
	return fileLimits{l.Running, l.Rate.Jobs, l.Rate.Per.Microseconds(), l.Rate.Burst}
}

func (l fileLimits) limits() signalbox.Limits {
	// One that is too long for a duration isn't valid either way.
	per := time.Duration(min(max(l.PerUS, -1), int64(48*time.Hour/time.Microsecond))) * time.Microsecond
	return signalbox.Limits{Running: l.Running, Rate: signalbox.Rate{Jobs: l.Jobs, Per: per, Burst: l.Burst}}
}

// setLimits gives a queue the limits of the file, and pauses the groups that it names. Groups that have limits of their own, or are paused, and aren't in the
// file, keep that.
func (s *fileSettings) setLimits(ctx context.Context, q *store.Queue) error {
	if _, err := q.Settings().SetLimits(ctx, s.Limits.limits()); err != nil {
		return err
	}
	if _, err := q.Settings().SetGroupLimits(ctx, s.GroupLimits.limits()); err != nil {
		return err
	}
	for _, group := range slices.Sorted(maps.Keys(s.LimitsOf)) {
		l := s.LimitsOf[group].limits()
		if _, err := q.Settings().SetLimitsOf(ctx, group, l); err != nil {
			return err
		}
	}
	for _, group := range s.PausedGroups {
		for _, key := range groupKeys(group) {
			if _, err := q.Settings().PauseGroup(ctx, key); err != nil {
				return err
			}
		}
	}
	_, err := q.Settings().SetMaxLength(ctx, s.MaxLength)
	return err
}

// checkLimits returns an error for limits that can't be.
func (s *fileSettings) checkLimits() error {
	errs := []error{settings.ValidateMaxLength(s.MaxLength), settings.ValidateLimits(s.Limits.limits()), settings.ValidateLimits(s.GroupLimits.limits())}
	for group, l := range s.LimitsOf {
		errs = append(errs, layout.ValidateGroup(group), settings.ValidateLimits(l.limits()))
	}
	for _, group := range s.PausedGroups {
		errs = append(errs, layout.ValidateGroup(group))
	}
	return errors.Join(errs...)
}

// pastHold says of a line that jobs are held back. The others are store.PastKinds.
const pastHold = "hold"

// A filePast is a line with something that the queue knows of the past.
type filePast struct {
	Past  string     `json:"past"`  // "outbox", "cron", "unique", "hold" or "death"
	Name  string     `json:"name"`  // of an outbox, a cron entry, a unique key, a group or a job
	Shard int        `json:"shard"` // of an outbox
	Value string     `json:"value"` // as docs/wire.md has it; not of an entry
	Until string     `json:"until,omitempty"`
	Entry *fileEntry `json:"entry,omitempty"`
}

// A fileEntry has the fields of a cron entry.
type fileEntry struct {
	Last   string `json:"last,omitempty"`
	Plans  string `json:"plans,omitempty"`
	Jobs   string `json:"jobs,omitempty"`
	Paused string `json:"paused,omitempty"`
	Spec   []byte `json:"spec_base64,omitempty"`
	Job    []byte `json:"job_base64,omitempty"`
	Seen   string `json:"seen,omitempty"`
	Quiet  string `json:"quiet,omitempty"`
}

func pastToFile(p *store.Past) filePast {
	line := filePast{Past: string(p.Kind), Name: p.Name, Shard: p.Shard, Value: p.Value}
	if e := &p.Entry; p.Kind == store.PastCron {
		line.Entry = &fileEntry{e.Last, e.Plans, e.Jobs, e.Paused, []byte(e.Spec), []byte(e.Job), e.Seen, e.Quiet}
	}
	return line
}

// past returns what a line says, of all kinds but pastHold.
func (line *filePast) past() (store.Past, error) {
	p := store.Past{Kind: store.PastKind(line.Past), Name: line.Name, Shard: line.Shard, Value: line.Value}
	if e := line.Entry; e != nil {
		p.Entry = store.EntryPast{Last: e.Last, Plans: e.Plans, Jobs: e.Jobs, Paused: e.Paused, Spec: string(e.Spec), Job: string(e.Job), Seen: e.Seen, Quiet: e.Quiet}
	}
	return p, p.Validate()
}

// hold returns what a line of pastHold says.
func (line *filePast) hold() (h settings.Hold, err error) {
	if h.Until, err = time.Parse(time.RFC3339Nano, line.Until); err != nil {
		return h, fmt.Errorf("%w until: want a time in RFC 3339", signalbox.ErrInvalid)
	}
	if h.Group = line.Name; h.Group != "" && (h.Group[0] != 's' && h.Group[0] != 'g' || layout.ValidateGroup(h.Group[1:]) != nil) {
		return h, fmt.Errorf("%w name: want that of a group behind g or s, or nothing", signalbox.ErrInvalid)
	}
	if h.By = line.Value; h.By != "" && layout.ValidateID(h.By) != nil {
		return h, fmt.Errorf("%w value: want the ID of a job, or nothing", signalbox.ErrInvalid)
	}
	return h, nil
}

// A fileEnd is the last line.
type fileEnd struct {
	End     bool  `json:"end"`
	Jobs    int64 `json:"jobs"`
	Running int64 `json:"running"`
}

// A fileJob is a line between them.
type fileJob struct {
	ID       string          `json:"id"`
	State    signalbox.State `json:"state"`
	Ran      bool            `json:"was_running,omitempty"`
	Kind     string          `json:"kind,omitempty"`
	Priority string          `json:"priority,omitempty"`

	Payload       json.RawMessage   `json:"payload,omitempty"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`
	Encoding      string            `json:"encoding,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	EffectKey     string            `json:"effect_key,omitempty"`

	EnqueuedAt string `json:"enqueued_at,omitempty"`
	DueAt      string `json:"due_at,omitempty"`
	EndedAt    string `json:"ended_at,omitempty"`

	Failed      int           `json:"failed,omitempty"`
	MaxAttempts int           `json:"max_attempts,omitempty"`
	Crashes     int           `json:"crashes,omitempty"`
	Timeout     int64         `json:"timeout_us,omitempty"`
	LastError   string        `json:"last_error,omitempty"`
	Finished    bool          `json:"finished,omitempty"`
	Saved       []byte        `json:"saved_base64,omitempty"`
	Attempts    []fileAttempt `json:"attempts,omitempty"`

	Flags  uint8  `json:"flags,omitempty"`
	Extras []byte `json:"extras_base64,omitempty"`
	Record []byte `json:"record_base64,omitempty"`
}

type fileAttempt struct {
	Number  int    `json:"number"`
	At      string `json:"at"`
	Ran     int64  `json:"ran_us"`
	Worker  string `json:"worker"`
	Error   string `json:"error"`
	Stack   string `json:"stack,omitempty"`
	TraceID string `json:"trace_id,omitempty"`
	SpanID  string `json:"span_id,omitempty"`
}

// lineOf returns the line of a job.
func lineOf(s *store.Stored) fileJob {
	j := &s.Whole.Job
	line := fileJob{
		ID: s.ID, State: s.State, Ran: s.Ran, Kind: j.Kind, Priority: j.Priority.String(), Headers: j.Headers, EffectKey: s.Effects,
		EnqueuedAt: fileTime(j.EnqueuedAt), DueAt: fileTime(j.ScheduledAt), EndedAt: fileTime(s.Ended), Failed: max(j.Attempt-1, 0),
		MaxAttempts: j.MaxAttempts, Crashes: j.Crashes, Timeout: j.Timeout.Microseconds(), LastError: j.LastError, Finished: j.Finished,
		Saved: j.Saved, Flags: s.Whole.Flags, Extras: s.Whole.Extras,
	}
	if line.Encoding = j.Encoding; plainJSON(j.Payload) {
		line.Payload = j.Payload
	} else {
		line.PayloadBase64 = j.Payload
	}
	for _, a := range s.Whole.Attempts {
		line.Attempts = append(line.Attempts, fileAttempt{a.Number, fileTime(a.At), a.Ran.Microseconds(), a.Worker, a.Error, a.Stack, a.TraceID, a.SpanID})
	}
	if !s.Exact {
		return fileJob{ID: s.ID, State: s.State, Ran: s.Ran, Kind: strings.ToValidUTF8(j.Kind, "\uFFFD"), EffectKey: s.Effects, EndedAt: line.EndedAt, Record: s.Record}
	}
	return line
}

// plainJSON reports whether a payload can stand in a line as it is: it is JSON, without spaces between its parts.
func plainJSON(payload []byte) bool {
	var b bytes.Buffer
	return utf8.Valid(payload) && json.Compact(&b, payload) == nil && bytes.Equal(b.Bytes(), payload)
}

// stored returns the job of a line. Its errors have nothing of the line but the names of fields.
func (line *fileJob) stored() (store.Stored, error) {
	s := store.Stored{ID: line.ID, State: line.State, Effects: line.EffectKey, Record: line.Record}
	var errs []error
	read := func(name, text string) time.Time {
		if text == "" {
			return time.Time{}
		}
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w %s: want a time in RFC 3339", signalbox.ErrInvalid, name))
		}
		return t.UTC().Truncate(time.Microsecond)
	}
	s.Ended = read("ended_at", line.EndedAt)
	if !s.State.Live() && s.Ended.IsZero() {
		errs = append(errs, fmt.Errorf("%w ended_at: it is missing", signalbox.ErrInvalid))
	}
	if len(line.Record) > 0 {
		return s, errors.Join(errs...)
	}
	j := &s.Whole.Job
	j.Kind, j.Headers, j.Payload, j.MaxAttempts, j.Crashes = line.Kind, line.Headers, line.PayloadBase64, line.MaxAttempts, line.Crashes
	j.Encoding = line.Encoding
	if line.Payload != nil {
		j.Payload = line.Payload
	}
	j.Attempt, j.LastError, j.Finished = line.Failed+1, line.LastError, line.Finished
	j.Saved = line.Saved
	j.Timeout = time.Duration(line.Timeout) * time.Microsecond
	j.EnqueuedAt, j.ScheduledAt = read("enqueued_at", line.EnqueuedAt), read("due_at", line.DueAt)
	s.Whole.Flags, s.Whole.Extras = line.Flags, line.Extras
	for _, field := range []struct {
		name        string
		value, most int64
	}{
		{"failed", int64(line.Failed), 1<<31 - 2},
		{"max_attempts", int64(line.MaxAttempts), 1<<31 - 1},
		{"crashes", int64(line.Crashes), 255},
		{"timeout_us", line.Timeout, 1 << 53},
	} {
		if field.value < 0 || field.value > field.most {
			errs = append(errs, fmt.Errorf("%w %s: it is out of bounds", signalbox.ErrInvalid, field.name))
		}
	}
	for name, missing := range map[string]bool{"enqueued_at": j.EnqueuedAt.IsZero(), "due_at": j.ScheduledAt.IsZero()} {
		if missing && len(errs) == 0 {
			errs = append(errs, fmt.Errorf("%w %s: it is missing", signalbox.ErrInvalid, name))
		}
	}
	switch line.Priority {
	case signalbox.PriorityHigh.String():
		j.Priority = signalbox.PriorityHigh
	case signalbox.PriorityLow.String():
		j.Priority = signalbox.PriorityLow
	case signalbox.PriorityNormal.String(), "":
	default:
		errs = append(errs, fmt.Errorf("%w priority: want high, normal or low", signalbox.ErrInvalid))
	}
	for _, a := range line.Attempts {
		s.Whole.Attempts = append(s.Whole.Attempts, store.Attempt{
			Number: a.Number, At: read("attempts.at", a.At), Ran: time.Duration(a.Ran) * time.Microsecond, Worker: a.Worker, Error: a.Error, Stack: a.Stack,
			TraceID: a.TraceID, SpanID: a.SpanID,
		})
	}
	return s, errors.Join(errs...)
}

func fileTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// unknownField fits the error of a field whose name is spelt like those of a file. Other names may be data of somebody's job.
var unknownField = regexp.MustCompile(`unknown field "([a-z_]{1,40})"$`)

// decodeLine reads a line. Its errors have nothing of the line but the names of fields.
func decodeLine(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var coded base64.CorruptInputError
	switch {
	case err == nil && len(bytes.TrimSpace(line[d.InputOffset():])) == 0:
		return nil
	case err == nil:
		return fmt.Errorf("%w line: there is more behind the JSON", signalbox.ErrInvalid)
	case errors.As(err, &syntax):
		return fmt.Errorf("%w line: it is no JSON: there is a mistake at byte %d of %d", signalbox.ErrInvalid, syntax.Offset, len(line))
	case errors.As(err, &kind):
		field, _, _ := strings.Cut(kind.Field, ".")
		return fmt.Errorf("%w line: field %.40q has a value of another type", signalbox.ErrInvalid, field)
	case errors.As(err, &coded):
		return fmt.Errorf("%w line: a field is no base64", signalbox.ErrInvalid)
	case strings.Contains(err.Error(), "unknown field"):
		if name := unknownField.FindStringSubmatch(err.Error()); name != nil {
			return fmt.Errorf("%w line: it has a field that this release doesn't know: %q", signalbox.ErrInvalid, name[1])
		}
		return fmt.Errorf("%w line: it has a field that this release doesn't know", signalbox.ErrInvalid)
	}
	return fmt.Errorf("%w line: it is no JSON", signalbox.ErrInvalid)
}
