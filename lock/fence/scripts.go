package fence

import (
	"embed"
	"strings"
)

//go:embed scripts/*.lua
var scripts embed.FS

// guarded returns a script that checks the token, then runs the effect, which is a script of its own.
func guarded(effect string) string {
	check, err := scripts.ReadFile("scripts/check.lua")
	if err != nil {
		panic(err) // it is embedded
	}
	head, tail, _ := strings.Cut(string(check), "\nEFFECT\n")
	return head + "\n" + effect + "\n" + tail
}
