package settings

import (
	"context"
	"fmt"
	"strconv"

	"github.com/signalbox-go/signalbox"
)

// MaxLength is the largest maximum of jobs that a queue can have.
const MaxLength = 1_000_000_000

// lengthField is the setting that says how many jobs a queue may have that haven't ended.
const lengthField = "max_length"

// ValidateMaxLength returns an error that wraps signalbox.ErrInvalid if a queue can't have n as its maximum. 0 is none.
func ValidateMaxLength(n int) error {
	if n < 0 || n > MaxLength {
		return fmt.Errorf("%w maximum length: %d; a queue can have 1 to %d, and 0 for none", signalbox.ErrInvalid, n, MaxLength)
	}
	return nil
}

// lengthText returns a maximum as the settings have it, or "" for none.
func lengthText(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// lengthOf reads such a text. What can't be read counts as none, as it does for the scripts.
func lengthOf(text string) int {
	if n, err := strconv.Atoi(text); err == nil && lengthText(n) == text && ValidateMaxLength(n) == nil {
		return n
	}
	return 0
}

// SetMaxLength sets how many jobs the queue may have that haven't ended; 0: any number. Producers that wait for room look again. It reports whether the
// maximum is another than before.
func (q *Settings) SetMaxLength(ctx context.Context, n int) (changed bool, err error) {
	return q.setBound(ctx, lengthField, lengthText(n))
}
