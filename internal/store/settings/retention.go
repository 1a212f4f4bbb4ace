package settings

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

// DefaultRetention is what is kept of dead and cancelled jobs, of each state, if nobody has said anything.
var DefaultRetention = signalbox.Retention{Jobs: 100_000, Bytes: 256 << 20, Age: 30 * 24 * time.Hour}

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

// SetRetention sets what the queue keeps of its dead and cancelled jobs. A field that is 0 gets its default. ValidateRetention must accept r.
func (q *Settings) SetRetention(ctx context.Context, r signalbox.Retention) error {
	_, err := q.change(ctx, keepField, keptText(r), "set", q.Operator, false)
	return err
}

// The settings that say what is kept of dead and cancelled jobs, and of completed ones: their number, their bytes and how long in us.
const (
	keepField      = "keep"
	completedField = "keep_completed"
)

// Filled returns the retention with its defaults, as the settings hold it: in whole microseconds.
func Filled(r signalbox.Retention) signalbox.Retention {
	return signalbox.Retention{
		Jobs:  cmp.Or(r.Jobs, DefaultRetention.Jobs),
		Bytes: cmp.Or(r.Bytes, DefaultRetention.Bytes),
		Age:   cmp.Or(r.Age, DefaultRetention.Age).Truncate(time.Microsecond),
	}
}

// SetCompleted sets which completed jobs the queue keeps: none if r is zero. A field that is 0 gets its default. ValidateRetention must
// accept r.
func (q *Settings) SetCompleted(ctx context.Context, r signalbox.Retention) error {
	_, err := q.change(ctx, completedField, retentionText(r), "set", q.Operator, false)
	return err
}

// An Ending is what becomes of jobs that have ended, as far as their worker must know it.
type Ending struct {
	Retention signalbox.Retention // of dead and cancelled jobs; zero if nobody has set it
	Completed signalbox.Retention // of completed jobs; zero if none are kept
	Copies    string              // the queue that gets copies of dead jobs; "" if there is none
}

// Ending reads it from the settings.
func (q *Settings) Ending(ctx context.Context) (Ending, error) {
	values, err := q.Client.HMGet(ctx, q.Keys.Settings, keepField, completedField, CopyField).Result()
	if err != nil {
		return Ending{}, err
	}
	keep, _ := values[0].(string)
	completed, _ := values[1].(string)
	copies, _ := values[2].(string)
	return Ending{keptOf(keep), keptOf(completed), copies}, nil
}

// retentionText returns the setting for r: "" if r is zero.
func retentionText(r signalbox.Retention) string {
	if r == (signalbox.Retention{}) {
		return ""
	}
	return keptText(r)
}

// keptText returns a retention as the settings have it.
func keptText(r signalbox.Retention) string {
	r = Filled(r)
	return fmt.Sprintf("%d %d %d", r.Jobs, r.Bytes, r.Age.Microseconds())
}

// keptOf reads such a text as scripts do. It is zero if they can't read it: it isn't set, or another program wrote it.
func keptOf(text string) signalbox.Retention {
	fields := strings.Split(text, " ")
	var numbers [3]int64
	if len(fields) != len(numbers) {
		return signalbox.Retention{}
	}
	for i, field := range fields {
		n, err := strconv.ParseUint(field, 10, 63)
		if err != nil || len(field) > 15 || field[0] == '0' {
			return signalbox.Retention{}
		}
		numbers[i] = int64(n)
	}
	return RetentionOf(numbers[0], numbers[1], numbers[2])
}

// RetentionOf returns what such settings keep.
func RetentionOf(jobs, bytes, us int64) signalbox.Retention {
	return signalbox.Retention{Jobs: jobs, Bytes: bytes, Age: time.Duration(us) * time.Microsecond}
}

// RetentionWords returns a retention in words, for logs.
func RetentionWords(r signalbox.Retention) string {
	if r == (signalbox.Retention{}) {
		return "none"
	}
	return fmt.Sprintf("%d jobs, %d bytes, for %v", r.Jobs, r.Bytes, r.Age)
}
