package server

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// A Role is what a client does with a queue. It says which commands its user must be allowed to call.
type Role int

// The roles.
const (
	Producer Role = iota // enqueues jobs and ticks of cron entries
	Worker               // claims, settles, renews, takes back, and reports depths
	Reporter             // reports depths
	Operator             // looks at queues, changes their settings, and acts on jobs
	Viewer               // looks at queues, jobs and workers, and changes nothing
	Relayer              // enqueues the jobs of outboxes
)

// String returns the name of the role.
func (r Role) String() string {
	switch r {
	case Producer:
		return "producer"
	case Reporter:
		return "reporter"
	}
	return "worker"
}

// roleScripts are the scripts that a role runs.
var roleScripts = map[Role][]string{
	Producer: {"enqueue", "plan", "announce", "ended", "permits"},
	Worker:   {"claim", "renew", "reclaim", "close", "sweep", "save", "then", "report", "depth", "set", "limit", "hold", "permits", "deaths", "copied", "enqueue", "add", "pass", "tend", "page"},
	Reporter: {"report", "depth", "permits"},
	Operator: {"depth", "show", "page", "list", "latest", "deliveries", "kinds", "history", "set", "limit", "hold", "pause", "act", "put", "moving", "past", "entry", "enqueue", "examine", "sum", "lined", "groups", "running", "mend", "permits", "copied", "remove", "unlist", "flow", "pass"},
	Viewer:   {"depth", "show", "page", "list", "latest", "deliveries", "kinds", "history", "examine", "sum", "lined", "groups", "running"},
	Relayer:  {"relay"},
}

// roleCalls are the commands that a role calls outside of scripts.
var roleCalls = map[Role][]string{
	Producer: {"EVALSHA", "EVAL", "SADD", "SET", "TIME"},
	Worker:   {"DEL", "EVALSHA", "EVAL", "EXISTS", "HMGET", "HSCAN", "SADD", "SET", "SSUBSCRIBE", "SUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE", "ZRANGE"},
	Reporter: {"EVALSHA", "EVAL", "HLEN", "HSCAN", "ZRANGE"},
	Operator: append(viewerCalls, "PEXPIRE", "PTTL", "SADD"),
	Viewer:   viewerCalls,
	Relayer:  {"EVALSHA", "EVAL", "HGET", "HGETALL", "HLEN", "HMGET", "HSET", "MGET", "PEXPIRE", "SADD", "ZCARD"},
}

// viewerCalls are those of package inspect where it reads.
var viewerCalls = []string{
	"EVALSHA", "EVAL", "EXISTS", "GET", "HGET", "HGETALL", "HLEN", "HMGET", "HSCAN", "LLEN", "LRANGE", "MEMORY|USAGE", "SCAN", "SISMEMBER", "SMEMBERS", "TIME", "TYPE", "ZLEXCOUNT", "ZRANGE", "ZSCAN", "ZSCORE",
}

// Commands returns the Redis commands that a queue's clients of these roles call, inside and outside of
// scripts: upper case, sorted, each once. A part of a command stands behind a "|", as in an ACL. Those of a client's own handshake (HELLO, CLIENT) and of
// health checks (INFO, PING) are not among them.
func Commands(roles ...Role) []string {
	var all []string
	for _, role := range roles {
		all = append(all, roleCalls[role]...)
		for _, name := range roleScripts[role] {
			all = append(all, scriptCommands()[name]...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

var (
	luaComment = regexp.MustCompile(`--[^\n]*`)
	luaCall    = regexp.MustCompile(`redis\.p?call\('(\w+)'`)
)

// scriptCommands returns the commands that each script calls, itself or in its functions, by the script's name. Each command's
// name is written out where it is called. The scripts are read once in a process, as that takes some milliseconds.
var scriptCommands = sync.OnceValue(func() map[string][]string {
	texts, commands := scripts.Sources(), make(map[string][]string)
	for _, names := range roleScripts {
		for _, name := range names {
			if commands[name] == nil {
				commands[name] = calledBy(texts[name])
			}
		}
	}
	return commands
})

// calledBy returns the commands that a text calls.
func calledBy(lua string) []string {
	var commands []string
	for _, call := range luaCall.FindAllStringSubmatch(luaComment.ReplaceAllString(lua, ""), -1) {
		commands = append(commands, strings.ToUpper(call[1]))
	}
	return commands
}
