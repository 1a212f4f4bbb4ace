package lock

import (
	"embed"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/lock/internal/lua"
)

//go:embed scripts/*.lua
var scripts embed.FS

var (
	acquireScript  = loadScript("acquire")
	extendScript   = loadScript("extend")
	releaseScript  = loadScript("release")
	freeScript     = redis.NewScript(lua.Plain(scripts, "free")) // it uses nothing of lib.lua
	leaveScript    = redis.NewScript(lua.Plain(scripts, "leave"))
	inspectScript  = loadScript("inspect")
	evictionScript = loadScript("eviction")
)

func loadScript(name string) *redis.Script { return redis.NewScript(lua.Source(scripts, name)) }
