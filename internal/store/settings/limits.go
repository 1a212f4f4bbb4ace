package settings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

const (
	maxLimit   = 1_000_000
	longestPer = 24 * time.Hour
)

// ValidateLimits returns an error that wraps signalbox.ErrInvalid and names each field with a value that limits can't have.
func ValidateLimits(l signalbox.Limits) error {
	var errs []error
	for _, field := range []struct {
		name  string
		value int
	}{{"Running", l.Running}, {"Rate.Jobs", l.Rate.Jobs}, {"Rate.Burst", l.Rate.Burst}} {
		none := field.value == signalbox.NoLimit && field.name != "Rate.Burst"
		if (field.value < 0 || field.value > maxLimit) && !none {
			errs = append(errs, fmt.Errorf("%w Limits.%s: %d; 1 to %d is allowed, and 0%s", signalbox.ErrInvalid, field.name, field.value, maxLimit,
				map[bool]string{true: ", and signalbox.NoLimit"}[field.name != "Rate.Burst"]))
		}
	}
	if p := l.Rate.Per; p != 0 && (p < time.Millisecond || p > longestPer) {
		errs = append(errs, fmt.Errorf("%w Limits.Rate.Per: %v; 1ms to %v is allowed, and 0 for 1s", signalbox.ErrInvalid, p, longestPer))
	}
	if l.Rate.Jobs <= 0 && (l.Rate.Per != 0 || l.Rate.Burst != 0) {
		errs = append(errs, fmt.Errorf("%w Limits.Rate: it has Per or Burst without Jobs", signalbox.ErrInvalid))
	}
	return errors.Join(errs...)
}

// limitsText returns limits as the settings have them, or "" if they say nothing. unset stands where a field says nothing: "0", and "-" in those of a single
// group, which has there what all groups have.
func limitsText(l signalbox.Limits, unset string) string {
	if l == (signalbox.Limits{}) {
		return ""
	}
	say := func(n int) string {
		switch n {
		case 0:
			return unset
		case signalbox.NoLimit:
			return "0"
		}
		return strconv.Itoa(n)
	}
	r := l.Rate
	if r.Jobs > 0 {
		r.Per, r.Burst = cmp.Or(r.Per, time.Second), cmp.Or(r.Burst, 1)
	}
	return fmt.Sprintf("%s %s %d %d", say(l.Running), say(r.Jobs), r.Per.Microseconds(), r.Burst)
}

// unsetOf is what stands for a field that a single group has as all groups have it.
const unsetOf = "-"

// SameLimits reports whether two limits say the same: of a queue or of all its groups, or of a single one.
func SameLimits(a, b signalbox.Limits, single bool) bool {
	if single {
		return limitsText(a, unsetOf) == limitsText(b, unsetOf)
	}
	return limitsText(a, "0") == limitsText(b, "0")
}

// LimitsWords returns limits in words, for logs.
func LimitsWords(l signalbox.Limits) string {
	var words []string
	if l.Running > 0 {
		words = append(words, fmt.Sprintf("%d running", l.Running))
	} else if l.Running == signalbox.NoLimit {
		words = append(words, "any number running")
	}
	if r := l.Rate; r.Jobs > 0 {
		words = append(words, fmt.Sprintf("%d per %v with burst %d", r.Jobs, cmp.Or(r.Per, time.Second), max(r.Burst, 1)))
	} else if r.Jobs == signalbox.NoLimit {
		words = append(words, "any rate")
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

// LimitsIn returns the limits that are in force for a group with limits of its own, by the limits of all groups. A field is 0 where there is none.
func LimitsIn(own, usual signalbox.Limits) signalbox.Limits {
	if own.Running != 0 {
		usual.Running = max(own.Running, 0)
	}
	if own.Rate.Jobs != 0 {
		usual.Rate = signalbox.Rate{}
		if own.Rate.Jobs > 0 {
			usual.Rate = own.Rate
		}
	}
	return usual
}

// LimitsOf reads such a text. What can't be read counts as none, as it does for the scripts.
func LimitsOf(text string) (l signalbox.Limits) {
	var running, jobs, burst int
	var us int64
	if n, err := fmt.Sscanf(text, "%d %d %d %d", &running, &jobs, &us, &burst); n != 4 || err != nil {
		return l
	}
	l = signalbox.Limits{Running: running, Rate: signalbox.Rate{Jobs: jobs, Per: time.Duration(us) * time.Microsecond, Burst: burst}}
	if cmp.Or(limitsText(l, "0"), "0 0 0 0") != text || ValidateLimits(l) != nil {
		return signalbox.Limits{}
	}
	return l
}

// OwnLimitsOf reads the limits of a single group: a field is 0 where it is as for all groups, and NoLimit where there is none.
func OwnLimitsOf(text string) (l signalbox.Limits) {
	fields := strings.Fields(text)
	if len(fields) != 4 {
		return signalbox.Limits{Running: signalbox.NoLimit, Rate: signalbox.Rate{Jobs: signalbox.NoLimit}} // as the scripts read it
	}
	inherits := [2]bool{fields[0] == unsetOf, fields[1] == unsetOf}
	for i := range inherits {
		if inherits[i] {
			fields[i] = "0"
		}
	}
	l = LimitsOf(strings.Join(fields, " "))
	if l.Running == 0 && !inherits[0] {
		l.Running = signalbox.NoLimit
	}
	if l.Rate.Jobs == 0 && !inherits[1] {
		l.Rate.Jobs = signalbox.NoLimit
	}
	return l
}

// The settings that have limits: of the queue, and of groups without limits of their own.
const (
	limitsField      = "limits"
	groupLimitsField = "group_limits"
	oneGroup         = "group" // the field for limit.lua if the limits are those of one group
)

// SetLimits sets the limits of the queue. It reports whether they are others than before. ValidateLimits must accept l.
func (q *Settings) SetLimits(ctx context.Context, l signalbox.Limits) (changed bool, err error) {
	return q.setBound(ctx, limitsField, limitsText(l, "0"))
}

// setBound sets a setting that bounds what runs or how many jobs there are; "" removes it. It reports whether it is another one than before.
func (q *Settings) setBound(ctx context.Context, field, value string) (changed bool, err error) {
	r, first, err := q.alter(ctx, settingOf(field), value, "set", q.Operator)
	if err != nil {
		return false, err
	}
	return r.Int(first) == 1, r.Err
}

// SetGroupLimits sets the limits of all groups that have none of their own. Lines that may go on since get turns. It reports whether the limits are
// others than before.
func (q *Settings) SetGroupLimits(ctx context.Context, l signalbox.Limits) (changed bool, err error) {
	if changed, err = q.setBound(ctx, groupLimitsField, limitsText(l, "0")); err != nil {
		return changed, err
	}
	return changed, q.relieve(ctx)
}

// SetLimitsOf sets the limits of the group and of the serial group of a name. A field that is 0 is as for all groups, so the zero value removes what was set. A serial
// group keeps the rate: one job of it runs at a time, whatever Running says. It reports whether the limits are others than before.
func (q *Settings) SetLimitsOf(ctx context.Context, group string, l signalbox.Limits) (changed bool, err error) {
	r, err := q.limitGroup(ctx, group, limitsText(l, unsetOf), "set", q.Operator, "")
	if err != nil {
		return false, err
	}
	return r.Int(1) == 1, r.Err
}

// GroupLimits returns the limits of the groups that have limits of their own, by the names of the groups: see SetLimitsOf.
func (q *Settings) GroupLimits(ctx context.Context) (map[string]signalbox.Limits, error) {
	fields, err := q.Client.HGetAll(ctx, q.Keys.Limits).Result()
	if err != nil {
		return nil, err
	}
	all := make(map[string]signalbox.Limits, len(fields))
	for key, text := range fields {
		if name, ok := strings.CutPrefix(key, "g"); ok {
			all[name] = OwnLimitsOf(text)
		}
	}
	return all, nil
}

// relieve has all groups follow new limits, in pages: those with jobs that wait for limits, whose lines get turns, and those of which it is known when
// the next job may start.
func (q *Settings) relieve(ctx context.Context) error {
	err := q.relievePages(ctx, func(next uint64) (keys []string, cursor uint64, err error) {
		fields, cursor, err := q.Client.HScan(ctx, q.Keys.Groups, next, "", maxRelieved).Result()
		for i := 0; i+1 < len(fields); i += 2 {
			if g, ok := facts.ParseGroup(fields[i+1]); ok && g.Waits() {
				keys = append(keys, fields[i])
			}
		}
		return keys, cursor, err
	})
	if err != nil {
		return err
	}
	return q.relievePages(ctx, func(next uint64) (keys []string, cursor uint64, err error) {
		fields, cursor, err := q.Client.ZScan(ctx, q.Keys.Rates, next, "[gs]*", maxRelieved).Result()
		for i := 0; i+1 < len(fields); i += 2 {
			keys = append(keys, fields[i])
		}
		return keys, cursor, err
	})
}

func (q *Settings) relievePages(ctx context.Context, page func(next uint64) (keys []string, cursor uint64, err error)) error {
	for next := uint64(0); ; {
		keys, cursor, err := page(next)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(keys, maxRelieved) {
			if _, err := q.limit(ctx, "", "", "", q.Operator, "", some...); err != nil {
				return err
			}
		}
		if next = cursor; next == 0 {
			return nil
		}
	}
}

// maxRelieved is at how many groups a call looks.
const maxRelieved = 500

// LimitsClock returns by how much the clock of limits is ahead of Redis' clock, which shows now. text is what the script of a claim has noted of it: see
// the function limits_clock.
func LimitsClock(text string, now time.Time) time.Duration {
	var seen, ahead int64
	if n, err := fmt.Sscanf(text, "%d %d", &seen, &ahead); n != 2 || err != nil {
		return 0
	}
	return max(time.Duration(ahead)*time.Microsecond, time.UnixMicro(seen).Sub(now))
}

// ClockField is the field of the statistics that has that text.
const ClockField = "clock"

// limitGroup changes the limits of one group, and of the serial group of that name: see limit.lua.
func (q *Settings) limitGroup(ctx context.Context, group, value, verb, by, of string) (*scripts.Reply, error) {
	return q.limit(ctx, oneGroup, value, verb, by, of, "g"+group, "s"+group)
}

// limit changes limits: see limit.lua.
func (q *Settings) limit(ctx context.Context, field, value, verb, by, of string, groups ...string) (*scripts.Reply, error) {
	for {
		sessions, err := q.SessionsOf(ctx, nil)
		if err != nil {
			return nil, err
		}
		keys := scripts.Limit.Keys(&q.Keys)
		for _, session := range sessions {
			keys = append(keys, q.Keys.Inflight(session))
		}
		args := scripts.Limit.Args(len(groups), scripts.Arg("protocol", layout.Protocol), scripts.Arg("inflight", q.Keys.Inflight("")), scripts.Arg("channel", q.Keys.Control()),
			scripts.Arg("field", field), scripts.Arg("value", value), scripts.Arg("verb", verb), scripts.Arg("by", by), scripts.Arg("of", of))
		for _, key := range groups {
			args = append(args, key)
		}
		r, err := scripts.Limit.Run(ctx, q.Client, keys, args)
		if err != nil {
			return nil, err
		}
		if err := r.Status("ok", "again"); err != nil {
			return nil, err
		}
		if r.Str(0) == "ok" {
			return r, r.Err
		} // a session was opened meanwhile
	}
}
