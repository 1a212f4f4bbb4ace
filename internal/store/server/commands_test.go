package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// Every call of Redis in a script names its command in place, so that Commands finds it; and each script
// belongs to a role.
func TestCommandsAreFound(t *testing.T) {
	t.Parallel()
	for name, text := range scripts.Sources() {
		lua := luaComment.ReplaceAllString(text, "")
		if calls, found := strings.Count(lua, "redis.call")+strings.Count(lua, "redis.pcall"), len(luaCall.FindAllString(lua, -1)); calls != found {
			t.Errorf("%s.lua: the commands of %d calls of %d are known", name, found, calls)
		}
		if !slices.Contains(slices.Concat(roleScripts[Producer], roleScripts[Worker], roleScripts[Operator], roleScripts[Relayer]), name) {
			t.Errorf("%s.lua is run by no role", name)
		}
	}
	if got := Commands(Producer); slices.Contains(got, "LPOP") || !slices.Contains(got, "PUBLISH") {
		t.Errorf("a producer calls %v", got)
	}
	if twice, once := Commands(Worker, Worker), Commands(Worker); len(twice) != len(once) {
		t.Errorf("a role twice calls %v, and once %v", twice, once)
	}
}
