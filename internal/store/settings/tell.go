package settings

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// Wanted is what a worker's Config says of a queue. A field that is zero says nothing.
type Wanted struct {
	Limits      signalbox.Limits            // of the queue
	GroupLimits signalbox.Limits            // of its groups without limits of their own
	MaxLength   int                         // jobs that it may have that haven't ended
	LimitsOf    map[string]signalbox.Limits // of single groups
	CopyDead    string                      // the queue that gets copies of dead jobs
	Retention   signalbox.Retention         // of dead and cancelled jobs
	Completed   signalbox.Retention         // of completed jobs
}

// Told is what has become of a setting whose value a worker has told.
type Told struct {
	Setting string    // the field of Config: "Limits"
	Changed bool      // it has another value than before
	Fresh   bool      // nothing was remembered of it: it is new, or Redis has lost it
	Ours    bool      // of the values that workers tell, this worker's counts
	Set     bool      // and is the queue's: else somebody has set another one since
	At      time.Time // when it was set, by the server's clock
	By      string    // "worker" or "operator", a space and a name
	Before  string    // what it was, in the words of Value
	HadAt   time.Time // when that was set
	HadBy   string    // by whom, as By; "nobody -" if nobody had
	Want    string    // the worker's value, in words
	Value   string    // the queue's value, in words
	Counts  string    // the value that counts of those that workers tell, in words
}

// Replaced reports whether a value was replaced that an operator had set.
func (t *Told) Replaced() bool { return t.Changed && strings.HasPrefix(t.HadBy, "operator ") }

// Tell tells what a worker's Config says of the queue. The newest value of those that workers tell is applied, unless it was applied before: see
// docs/decisions/0044-settings.md. It returns what has become of each setting of which Config says something, also if the error isn't nil: then of those before.
func (q *Settings) Tell(ctx context.Context, worker string, w Wanted) (all []Told, err error) {
	for _, s := range ofConfig() {
		value := s.wanted(&w)
		if value == "" {
			continue
		}
		told, err := q.tell(ctx, s, value, "tell", "worker "+worker)
		if err != nil {
			return all, err
		}
		all = append(all, told)
		if s.field == limitsOfField && told.Ours {
			of, err := q.tellGroups(ctx, "worker "+worker, w.LimitsOf, value)
			all = append(all, of...)
			if err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// limitsOfField is the setting that says which limits of single groups count: the digest of those of a Config. What each group has is in another hash.
const limitsOfField = "limits_of"

// limitsOfText returns that digest: "" if Config says nothing of single groups.
func (w *Wanted) limitsOfText() string {
	sum, some := sha256.New(), false
	for _, group := range slices.Sorted(maps.Keys(w.LimitsOf)) {
		if text := limitsText(w.LimitsOf[group], unsetOf); text != "" {
			some = true
			fmt.Fprintf(sum, "%d %s%s\n", len(group), group, text)
		}
	}
	if !some {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// tellGroups applies what a Config says of single groups, whose digest is of: of each group whose limits of a Config that were applied last are others. It
// returns what has become of the groups that it looked at closely.
func (q *Settings) tellGroups(ctx context.Context, by string, limits map[string]signalbox.Limits, of string) (all []Told, err error) {
	for names := range slices.Chunk(slices.Sorted(maps.Keys(limits)), maxRelieved) {
		fields := make([]string, 0, 2*len(names))
		for _, name := range names {
			fields = append(fields, "g"+name, "o"+name)
		}
		there, err := q.Client.HMGet(ctx, q.Keys.Limits, fields...).Result()
		if err != nil {
			return all, err
		}
		for i, name := range names {
			text := limitsText(limits[name], unsetOf)
			has, _ := there[2*i].(string)
			known, _ := there[2*i+1].(string)
			fields := strings.SplitN(known, " ", 4)
			if len(fields) < 4 {
				fields = []string{"0", "nobody", "-", ""}
			}
			us, _ := strconv.ParseInt(fields[0], 10, 64)
			t := Told{
				Setting: "LimitsOf[" + strconv.Quote(name) + "]", Ours: true, Set: has == text, At: time.UnixMicro(us), By: fields[1] + " " + fields[2],
				Want: ownWords(text), Value: ownWords(has), Counts: ownWords(text),
			}
			if text != "" && fields[3] != text {
				r, err := q.limitGroup(ctx, name, text, "tell", by, of)
				if err != nil {
					return all, err
				}
				value := r.Str(3)
				t.Changed, t.Fresh, t.Set, t.Value = r.Int(1) == 1, r.Int(2) == 1, value == text, ownWords(value)
				t.At, t.By, t.Before, t.HadAt, t.HadBy = r.Micros(4), r.Str(5), ownWords(r.Str(6)), r.Micros(7), r.Str(8)
				if r.Err != nil {
					return all, r.Err
				}
			}
			if text != "" && (t.Changed || !t.Set) {
				all = append(all, t)
			}
		}
	}
	return all, nil
}

// ownWords returns limits of a single group in words.
func ownWords(text string) string {
	if text == "" {
		return "none"
	}
	return LimitsWords(OwnLimitsOf(text))
}

// Reset gives a setting the value that workers tell again, or removes it if none has told one for three minutes. name is that of the field of Config: see Told.
func (q *Settings) Reset(ctx context.Context, name string) (Told, error) {
	var names []string
	for _, s := range ofConfig() {
		switch {
		case s.config == name:
			return q.tell(ctx, s, "", "reset", q.Operator)
		case s.keeps:
			names = append(names, s.config)
		}
	}
	return Told{}, fmt.Errorf("%w setting: %.40q; want one of %s", signalbox.ErrInvalid, name, strings.Join(names, ", "))
}

// ResetGroup gives a group the limits of a Config that were applied last, or removes its own if none were. It reports whether they are others than before.
func (q *Settings) ResetGroup(ctx context.Context, group string) (changed bool, err error) {
	r, err := q.limitGroup(ctx, group, "", "reset", q.Operator, "")
	if err != nil {
		return false, err
	}
	return r.Int(1) == 1, r.Err
}

func (q *Settings) tell(ctx context.Context, s *setting, told, verb, by string) (Told, error) {
	r, first, err := q.alter(ctx, s, told, verb, by)
	if err != nil {
		return Told{}, err
	}
	words := func(i int) string { return s.inWords(r.Str(i)) }
	value, counts := r.Str(first+2), r.Str(first+8)
	t := Told{
		Setting: s.config, Changed: r.Int(first) == 1, Fresh: r.Int(first+1) == 1, Ours: counts == told, Set: value == told,
		At: r.Micros(first + 3), By: r.Str(first + 4), HadAt: r.Micros(first + 6), HadBy: r.Str(first + 7),
		Want: s.inWords(told), Value: words(first + 2), Before: words(first + 5), Counts: words(first + 8),
	}
	switch {
	case r.Err != nil || !t.Changed:
		return t, r.Err
	case s.field == groupLimitsField:
		return t, q.relieve(ctx)
	case s.field == CopyField && value == "":
		return t, q.forgetDeaths(ctx)
	}
	return t, nil
}

// alter changes a setting, and what is remembered of it. It returns the reply, and the index in it of what told_reply returns.
func (q *Settings) alter(ctx context.Context, s *setting, value, verb, by string) (r *scripts.Reply, first int, err error) {
	if !s.bounds || verb == "tell" { // it mostly changes nothing, each minute: a script that looks at each session would be a waste
		r, err = q.change(ctx, s.field, value, verb, by, s.bounds)
		if err != nil || r.Int(0) != 3 {
			return r, 0, err
		}
	}
	r, err = q.limit(ctx, s.field, value, verb, by, "")
	return r, 1, err
}
