package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
)

// retention limits the terminal jobs that are kept. It counts each state separately.
type retention struct {
	count int
	bytes int64
	age   time.Duration
}

var defaultRetention = retention{count: 100_000, bytes: 256 << 20, age: 30 * 24 * time.Hour}

// largestNumber and longestKept limit the numbers that scripts read from the settings to 15 digits.
const (
	largestNumber = 1e15 - 1
	longestKept   = 10_000 * 24 * time.Hour
)

// ValidateRetention returns an error that wraps signalbox.ErrInvalid and names each field with a value that a queue can't have.
func ValidateRetention(r signalbox.Retention) error {
	var errs []error
	for _, field := range []struct {
		name  string
		value int64
	}{{"Jobs", r.Jobs}, {"Bytes", r.Bytes}} {
		if field.value < 0 || field.value > largestNumber {
			errs = append(errs, fmt.Errorf("%w Retention.%s: %d; 1 to %.0f is allowed, and 0 for the default", signalbox.ErrInvalid, field.name, field.value, largestNumber))
		}
	}
	if r.Age != 0 && (r.Age < time.Microsecond || r.Age > longestKept) {
		errs = append(errs, fmt.Errorf("%w Retention.Age: %v; 1µs to %v is allowed, and 0 for the default", signalbox.ErrInvalid, r.Age, longestKept))
	}
	return errors.Join(errs...)
}

// SetRetention sets what the queue keeps. It sets all fields, also where r has the default. It returns what is set after that.
// ValidateRetention must accept r.
func (q *Queue) SetRetention(ctx context.Context, r signalbox.Retention) (signalbox.Retention, error) {
	now, _, err := q.keep(ctx, true, Filled(r))
	return now, err
}

// SeedRetention sets those fields of r that are not 0 and that are not set yet. It returns what is set after that, and whether it has set any. An unset
// field is 0.
func (q *Queue) SeedRetention(ctx context.Context, r signalbox.Retention) (now signalbox.Retention, changed bool, err error) {
	return q.keep(ctx, false, r)
}

func (q *Queue) keep(ctx context.Context, all bool, kept signalbox.Retention) (now signalbox.Retention, changed bool, err error) {
	r, err := run(ctx, q.rdb, keepScript, keepScript.keys(&q.keys),
		keepScript.args(0, arg{"protocol", Protocol}, arg{"all", flag(all)}, arg{"keep_jobs", number(kept.Jobs)}, arg{"keep_bytes", number(kept.Bytes)},
			arg{"keep_us", number(kept.Age.Microseconds())}))
	if err != nil {
		return signalbox.Retention{}, false, err
	}
	now, changed = retentionOf(r.str(0), r.str(1), r.str(2)), r.int(3) == 1
	return now, changed, r.err
}

// completedField is the setting that says how many completed jobs are kept: their number, their bytes and how long in us, or keepsNone.
const (
	completedField = "keep_completed"
	keepsNone      = "off"
)

// Filled returns the retention with its defaults, as the settings hold it: in whole microseconds.
func Filled(r signalbox.Retention) signalbox.Retention {
	return signalbox.Retention{
		Jobs:  cmp.Or(r.Jobs, int64(defaultRetention.count)),
		Bytes: cmp.Or(r.Bytes, defaultRetention.bytes),
		Age:   cmp.Or(r.Age, defaultRetention.age).Truncate(time.Microsecond),
	}
}

// SetCompleted sets which completed jobs the queue keeps: none if r is zero. A field that is 0 gets its default. ValidateRetention must
// accept r.
func (q *Queue) SetCompleted(ctx context.Context, r signalbox.Retention) error {
	_, err := q.set(ctx, completedField, completedText(r))
	return err
}

// SeedCompleted does the same if nobody has set it before. It reports whether it has.
func (q *Queue) SeedCompleted(ctx context.Context, r signalbox.Retention) (changed bool, err error) {
	return q.change(ctx, completedField, completedText(r), true)
}

// An Ending is what becomes of jobs that have ended, as far as their worker must know it.
type Ending struct {
	Completed signalbox.Retention // of completed jobs; zero if none are kept
	Copies    string              // the queue that gets copies of dead jobs; "" if there is none
}

// Ending reads it from the settings.
func (q *Queue) Ending(ctx context.Context) (Ending, error) {
	values, err := q.rdb.HMGet(ctx, q.keys.settings, completedField, copyField).Result()
	if err != nil {
		return Ending{}, err
	}
	completed, _ := values[0].(string)
	copies, _ := values[1].(string)
	return Ending{completedOf(completed), copiesOf(copies)}, nil
}

// completedText returns the setting for r.
func completedText(r signalbox.Retention) string {
	if r == (signalbox.Retention{}) {
		return keepsNone
	}
	r = Filled(r)
	return fmt.Sprintf("%d %d %d", r.Jobs, r.Bytes, r.Age.Microseconds())
}

// completedOf reads the setting as scripts do. It is zero if they keep nothing.
func completedOf(text string) signalbox.Retention {
	jobs, rest, _ := strings.Cut(text, " ")
	bytes, us, _ := strings.Cut(rest, " ")
	r := retentionOf(jobs, bytes, us)
	if r.Jobs == 0 || r.Bytes == 0 || r.Age == 0 {
		return signalbox.Retention{}
	}
	return r
}

// number returns n in digits, or "" for 0.
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// retentionOf reads the settings. A value that scripts can't read is 0: another program wrote it.
func retentionOf(jobs, bytes, us string) signalbox.Retention {
	read := func(text string) int64 {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil || len(text) > 15 || text[0] == '0' {
			return 0
		}
		return int64(n)
	}
	return signalbox.Retention{Jobs: read(jobs), Bytes: read(bytes), Age: time.Duration(read(us)) * time.Microsecond}
}

// RetentionOf returns what such settings keep.
func RetentionOf(jobs, bytes, us int64) signalbox.Retention {
	return signalbox.Retention{Jobs: jobs, Bytes: bytes, Age: time.Duration(us) * time.Microsecond}
}
