package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua scripts/chapters/*.lua
var scripts embed.FS

var (
	enqueueScript = load("enqueue")
	relayScript   = load("relay")
	claimScript   = load("claim")
	renewScript   = load("renew")
	reclaimScript = load("reclaim")
	closeScript   = load("close")
	sweepScript   = load("sweep")
	reportScript  = load("report")
	depthScript   = load("depth")
	permitsScript = load("permits")
	setScript     = load("set")
	actScript     = load("act")
	showScript    = load("show")
	pageScript    = load("page")
	listScript    = load("list")
	heldScript    = load("held")
	kindsScript   = load("kinds")
	latestScript  = load("latest")
	putScript     = load("put")
	movingScript  = load("moving")
	pastScript    = load("past")
	limitScript   = load("limit")
	holdScript    = load("hold")
	pauseScript   = load("pause")
	historyScript = load("history")
	deathsScript  = load("deaths")
	copiedScript  = load("copied")

	planScript     = load("plan")
	announceScript = load("announce")
	entryScript    = load("entry")

	examineScript = load("examine")
	mendScript    = load("mend")
	sumScript     = load("sum")
	linedScript   = load("lined")
	groupsScript  = load("groups")
	runningScript = load("running")

	removeScript = load("remove")
	unlistScript = load("unlist")
)

// A script is one of the scripts, with the names that the lines on top of it give to keys and to arguments:
//
//	local LANE, JOBS, ... = unpack(KEYS)
//	local protocol, seq, ... = unpack(ARGV)
//
// Keys of a call of one's own (LANE, INFLIGHT) stand first, or behind all that have a name. Arguments without a name, such as
// those of each job, stand behind the others.
type script struct {
	name      string
	lua       func() *redis.Script // put together when it is first called: most programs use a few scripts
	keyNames  []string
	argNames  []string
	positions func() []position // of its lines; they are read when an error names one
}

func load(name string) *script {
	text := read(name)
	return &script{
		name: name, lua: sync.OnceValue(func() *redis.Script { return redis.NewScript(source(name)) }), keyNames: unpacked(text, "KEYS"), argNames: unpacked(text, "ARGV"),
		positions: sync.OnceValue(func() []position { return positionsOf(name) }),
	}
}

// unpacked returns the names that a script gives to the elements of a list, or nil if it gives none.
func unpacked(lua, list string) []string {
	before, _, found := strings.Cut(lua, " = unpack("+list)
	if !found {
		return nil
	}
	return strings.Split(before[strings.LastIndex(before, "local ")+len("local "):], ", ")
}

// keys returns the KEYS of a call: own for the first names, and the queue's keys for the others.
func (s *script) keys(k *keys, own ...string) []string {
	list := append(make([]string, 0, len(s.keyNames)+4), own...)
	for _, name := range s.keyNames[len(own):] {
		list = append(list, k.named[name])
	}
	return list
}

// An arg is the value of an argument that has a name.
type arg struct {
	name  string
	value any
}

// args returns the ARGV of a call: the values of the arguments that have names, in the script's order, with room for more behind
// them. It panics unless each of them has a value.
func (s *script) args(more int, values ...arg) []any {
	list := make([]any, len(s.argNames), len(s.argNames)+more)
	for _, v := range values {
		i := slices.Index(s.argNames, v.name)
		if i < 0 || list[i] != nil {
			panic("store: the script has no argument " + v.name + ", or it is there twice")
		}
		list[i] = v.value
	}
	if len(values) != len(list) {
		panic(fmt.Sprintf("store: %d arguments of the script's %d", len(values), len(list)))
	}
	return list
}

// Sources returns the texts of all scripts by their names, as Redis gets them.
func Sources() map[string]string {
	files, err := scripts.ReadDir("scripts")
	if err != nil {
		panic(err) // they are embedded
	}
	texts := make(map[string]string)
	for _, f := range files {
		if name, found := strings.CutSuffix(f.Name(), ".lua"); found {
			texts[name] = source(name)
		}
	}
	return texts
}

// source returns the text of a script, as Redis gets it: with the functions of chapters that it needs, see pick.
func source(name string) string {
	return pick(read(name))
}

func read(name string) string {
	b, err := scripts.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}

// run runs a script and returns its reply, which is read with the methods of reply.
func run(ctx context.Context, rdb redis.Scripter, s *script, keys []string, args []any) (*reply, error) {
	return s.ran(ctx, rdb, s.lua().Run(ctx, rdb, keys, args...))
}

// ran returns the reply of a call of the script.
func (s *script) ran(ctx context.Context, rdb redis.Scripter, cmd *redis.Cmd) (*reply, error) {
	v, err := cmd.Result()
	if err != nil {
		seekMaster(ctx, rdb, err)
		return nil, layoutError(s.located(err))
	}
	list, ok := v.([]any)
	if !ok {
		return &reply{list: []any{v}}, nil
	}
	return &reply{list: list}, nil
}

// seekMaster has a Cluster client load its map of slots again, after a call without an answer. When a master has
// died, go-redis by itself does so only once a minute.
func seekMaster(ctx context.Context, rdb any, err error) {
	var answer redis.Error
	if errors.As(err, &answer) && !redis.HasErrorPrefix(err, "CLUSTERDOWN") {
		return
	}
	if cluster, ok := rdb.(interface{ ReloadState(ctx context.Context) }); ok {
		cluster.ReloadState(ctx)
	}
}

// A reply is read field by field; whatever the server sent, reading doesn't panic. The first
// field of the wrong type is kept as the error.
type reply struct {
	list []any
	err  error
}

func (r *reply) at(i int) any {
	if i >= len(r.list) {
		r.fail(i, "nothing")
		return nil
	}
	return r.list[i]
}

func (r *reply) fail(i int, got string) {
	if r.err == nil {
		r.err = fmt.Errorf("store: field %d of the script's reply is %s: is another program writing to this queue's keys?", i, got)
	}
}

// status reads the first field, which is one of want.
func (r *reply) status(want ...string) error {
	switch s := r.str(0); {
	case r.err != nil:
		return r.err
	case s == "stale":
		return ErrStale
	case !slices.Contains(want, s):
		r.fail(0, fmt.Sprintf("%.40q", s))
		return r.err
	}
	return nil
}

func (r *reply) str(i int) string {
	s, ok := r.at(i).(string)
	if !ok && r.err == nil {
		r.fail(i, fmt.Sprintf("%T, not a string", r.list[i]))
	}
	return s
}

// micros reads a time in us that is a string.
func (r *reply) micros(i int) time.Time {
	us, err := strconv.ParseInt(r.str(i), 10, 64)
	if err != nil && r.err == nil {
		r.fail(i, fmt.Sprintf("%.40q, not a time in us", r.str(i)))
	}
	return time.UnixMicro(us)
}

func (r *reply) int(i int) int64 {
	n, ok := r.at(i).(int64)
	if !ok && r.err == nil {
		r.fail(i, fmt.Sprintf("%T, not an integer", r.list[i]))
	}
	return n
}

func (r *reply) strs(i int) []string {
	list := r.array(i)
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for j, v := range list {
		s, ok := v.(string)
		if !ok {
			r.fail(i, fmt.Sprintf("a list with %T, not strings", v))
		}
		out[j] = s
	}
	return out
}

func (r *reply) array(i int) []any {
	list, ok := r.at(i).([]any)
	if !ok && r.err == nil {
		r.fail(i, fmt.Sprintf("%T, not a list", r.list[i]))
	}
	return list
}
