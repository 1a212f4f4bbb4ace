package lock

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scripts embed.FS

var (
	acquireScript  = loadScript("acquire")
	extendScript   = loadScript("extend")
	releaseScript  = loadScript("release")
	freeScript     = redis.NewScript(readScript("free")) // it needs nothing of lib.lua
	inspectScript  = loadScript("inspect")
	evictionScript = loadScript("eviction")

	redlockJoinScript = loadScript("redlock_join")
)

func loadScript(name string) *redis.Script { return redis.NewScript(scriptSource(name)) }

// scriptSource is a script of ours, after the functions that all of them share.
func scriptSource(name string) string { return readScript("lib") + readScript(name) }

func readScript(name string) string {
	text, err := scripts.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // embedded by the compiler
	}
	return string(text)
}

// isAnswer tells whether an error is Redis' own answer. Our scripts write nothing then.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// ended is why ctx ended: its cause and, if that is another error, its Err.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// isWrongType tells whether somebody keeps another type at a key of ours.
func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }
