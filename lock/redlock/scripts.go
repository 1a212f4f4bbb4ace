package redlock

import (
	"embed"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/lock/internal/lua"
)

//go:embed scripts/*.lua
var scripts embed.FS

var (
	acquireScript = newNodeScript("acquire")
	extendScript  = newNodeScript("extend")
	releaseScript = newNodeScript("release")

	joinScript = redis.NewScript(lua.Source(scripts, "join"))
)

// A nodeScript is a script as the arguments of a command.
type nodeScript struct{ name, hash, source any }

func newNodeScript(name string) *nodeScript {
	text := lua.Source(scripts, name)
	return &nodeScript{name, redis.NewScript(text).Hash(), text}
}
