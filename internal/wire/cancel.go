package wire

import (
	"errors"

	"github.com/signalbox-go/signalbox"
)

// AppendCancelled appends what the record of a job that somebody cancels gets: why, as the last error, and whether its handler
// had returned nil by then. It is appended to a record that can't be read, as [AppendLastError] is.
func AppendCancelled(b []byte, why string, finished bool) []byte {
	cancel := &signalbox.CancelError{}
	if why != "" {
		cancel.Err = errors.New(why)
	}
	message := cancel.Error()
	if finished {
		message += " (too late: its handler had returned nil)"
	}
	b = AppendLastError(b, message)
	if finished {
		b = appendUint(b, fieldFinished, 1)
	}
	return b
}

// AppendArchived appends what the record of a job gets that somebody makes dead: why, as the last error.
func AppendArchived(b []byte, why string) []byte {
	message := "archived"
	if why != "" {
		message += ": " + why
	}
	return AppendLastError(b, message)
}
