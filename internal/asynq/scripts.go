package asynq

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var scripts embed.FS

var take, end, back = script("take"), script("end"), script("back")

func script(name string) *redis.Script {
	b, err := scripts.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return redis.NewScript(string(b))
}
