// Package lua has what lockers on Redis need to run scripts: the text that all scripts share, and readers of
// replies and errors.
package lua

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/redis/go-redis/v9"
)

//go:embed lib.lua
var lib string

// Source returns the text of scripts/name.lua in a locker's files, after the functions of lib.lua.
func Source(files fs.FS, name string) string { return lib + Plain(files, name) }

// Plain returns the text of scripts/name.lua alone. It is for scripts that need nothing of lib.lua.
func Plain(files fs.FS, name string) string {
	text, err := fs.ReadFile(files, "scripts/"+name+".lua")
	if err != nil {
		panic(err) // the compiler has embedded it
	}
	return string(text)
}

// IsAnswer reports whether an error is an answer of Redis itself. In that case the script wrote nothing.
func IsAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// IsWrongType reports whether a script found a key of another type.
func IsWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// Unexpected returns the error for a reply that no script gives. A proxy between client and Redis may have made it.
func Unexpected(reply any) error {
	return fmt.Errorf("unexpected reply of Redis: %.100s", fmt.Sprint(reply))
}

// Numbers reads fields that are integers. It reports whether their number is right and all are integers.
func Numbers(fields []any, into ...*int64) bool {
	if len(fields) != len(into) {
		return false
	}
	for i, f := range fields {
		n, ok := f.(int64)
		if !ok {
			return false
		}
		*into[i] = n
	}
	return true
}
