package settings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// remembered is what is remembered of a setting: see memory_of in chapters/settings.lua.
type remembered struct {
	at      time.Time // when its value was set; zero if nobody has set it
	by      string    // "worker" or "operator", a space and a name; "" if nobody has
	counts  string    // the value that counts of those that workers told; "" if there is none
	applied string    // the value of a Config that was applied last; "" if there is none
}

var (
	memoryHead = regexp.MustCompile(`^(\d{1,18}) ([a-z]+ [!-~]+) \d{1,18}$`)
	memoryLine = regexp.MustCompile(`^\d{1,18} (\d{1,18}) ([*-]) (.*)$`)
	groupLine  = regexp.MustCompile(`^(\d{1,18}) ([a-z]+ [!-~]+) (.*)$`)
)

// HeardFor is for how long only others may be told until a value no longer counts, as the scripts have it.
const HeardFor = 3 * time.Minute

// memoryOf reads such a text. What can't be read is as none.
func memoryOf(text string) (m remembered) {
	lines := strings.Split(text, "\n")
	head := memoryHead.FindStringSubmatch(lines[0])
	if head == nil {
		return m
	}
	if m.at = microsOf(head[1]); !m.at.IsZero() {
		m.by = head[2]
	}
	for _, line := range lines[1:] {
		if v := memoryLine.FindStringSubmatch(line); v != nil {
			age, _ := strconv.ParseInt(v[1], 10, 64)
			if m.counts == "" && age < HeardFor.Microseconds() {
				m.counts = v[3]
			}
			if v[2] == "*" {
				m.applied = v[3]
			}
		}
	}
	return m
}

// microsOf reads digits as a time in us: zero for 0.
func microsOf(digits string) time.Time {
	us, _ := strconv.ParseInt(digits, 10, 64)
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// Remembered returns each setting that a Config can say, but those of single groups: what it is, by whom and when it was set, and what the Config says that counts.
func (q *Settings) Remembered(ctx context.Context) (all []Told, err error) {
	fields, err := q.Client.HGetAll(ctx, q.Keys.Settings).Result()
	if err != nil {
		return nil, err
	}
	for _, s := range ofConfig() {
		if s.field == limitsOfField {
			continue
		}
		m := memoryOf(fields["of "+s.field])
		all = append(all, Told{Setting: s.config, Value: s.inWords(fields[s.field]), Counts: s.inWords(m.counts), At: m.at, By: m.by})
	}
	return all, nil
}

// A Change is one of a setting, a pause or slots.
type Change struct {
	At            time.Time
	By            string // "worker" or "operator", a space and a name
	Field         string
	Before, After string // as the settings have it; "": none
}

// Changes returns the last changes, the newest first.
func (q *Settings) Changes(ctx context.Context) (all []Change, err error) {
	text, err := q.Client.HGet(ctx, q.Keys.Settings, "changes").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(f) == 5 {
			all = append(all, Change{microsOf(f[0]), f[1], f[2], f[3], f[4]})
		}
	}
	return all, nil
}

// Applied are the values of Configs that were applied last, as the settings have them. They go where a queue goes: a worker's Config isn't new there.
type Applied struct {
	Settings map[string]string // by the fields of the settings
	Groups   map[string]string // limits of single groups, by their names
}

// Applied reads them.
func (q *Settings) Applied(ctx context.Context) (a Applied, err error) {
	fields, err := q.Client.HGetAll(ctx, q.Keys.Settings).Result()
	if err != nil {
		return a, err
	}
	of, err := q.Client.HGetAll(ctx, q.Keys.Limits).Result()
	if err != nil {
		return a, err
	}
	a = Applied{make(map[string]string), make(map[string]string)}
	for _, s := range ofConfig() {
		if value := memoryOf(fields["of "+s.field]).applied; value != "" {
			a.Settings[s.field] = value
		}
	}
	for field, text := range of {
		if name, is := strings.CutPrefix(field, "o"); is {
			if o := groupLine.FindStringSubmatch(text); o != nil && o[3] != "" {
				a.Groups[name] = o[3]
			}
		}
	}
	return a, nil
}

// ownForm is how limits of a single group are told.
var ownForm = regexp.MustCompile(`^(-|\d{1,7}) (-|\d{1,7}) \d{1,11} \d{1,7}$`)

// Validate returns an error that wraps signalbox.ErrInvalid if a queue can't have had them.
func (a Applied) Validate() error {
	for _, field := range slices.Sorted(maps.Keys(a.Settings)) {
		if s := settingOf(field); s == nil || s.config == "" || !s.form.MatchString(a.Settings[field]) {
			return fmt.Errorf("%w value of a Config that was applied: %.40q; want a setting of docs/wire.md in its form", signalbox.ErrInvalid, field)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(a.Groups)) {
		if err := layout.ValidateGroup(group); err != nil {
			return err
		}
		if !ownForm.MatchString(a.Groups[group]) {
			return fmt.Errorf("%w limits of a group in a Config that were applied: want four numbers, or - in place of the first two", signalbox.ErrInvalid)
		}
	}
	return nil
}

// Carry notes that they were applied here, where no worker has told another one. Validate must accept a.
func (q *Settings) Carry(ctx context.Context, a Applied) error {
	for _, s := range ofConfig() {
		if value := a.Settings[s.field]; value != "" {
			r, _, err := q.alter(ctx, s, value, "carry", q.Operator)
			if err != nil {
				return err
			}
			if r.Err != nil {
				return r.Err
			}
		}
	}
	for _, group := range slices.Sorted(maps.Keys(a.Groups)) {
		if _, err := q.limitGroup(ctx, group, a.Groups[group], "carry", q.Operator, ""); err != nil {
			return err
		}
	}
	return nil
}
