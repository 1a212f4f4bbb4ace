// Package scripts has the Lua that runs in Redis. A transition is a file here; the functions that it names are in chapters, and stand in front of it when it is
// sent. The package puts scripts together, runs them, reads their replies, and says at which line of which file an error arose.
package scripts

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

	"github.com/signalbox-go/signalbox/internal/store/layout"
)

//go:embed *.lua chapters/*.lua
var files embed.FS

var (
	Enqueue = load("enqueue")
	Relay   = load("relay")
	Claim   = load("claim")
	Renew   = load("renew")
	Reclaim = load("reclaim")
	Close   = load("close")
	Sweep   = load("sweep")
	Report  = load("report")
	Depth   = load("depth")
	Permits = load("permits")
	Set     = load("set")
	Act     = load("act")
	Show    = load("show")
	Page    = load("page")
	List    = load("list")
	Kinds   = load("kinds")
	Latest  = load("latest")
	Ended   = load("ended")
	Put     = load("put")
	Moving  = load("moving")
	Past    = load("past")
	Limit   = load("limit")
	Hold    = load("hold")
	Save    = load("save")
	Then    = load("then")
	Flow    = load("flow")
	Add     = load("add")
	Pass    = load("pass")
	Tend    = load("tend")
	Pause   = load("pause")
	History = load("history")
	Deaths  = load("deaths")
	Copied  = load("copied")

	Plan     = load("plan")
	Announce = load("announce")
	Entry    = load("entry")

	Examine = load("examine")
	Mend    = load("mend")
	Sum     = load("sum")
	Lined   = load("lined")
	Groups  = load("groups")
	Running = load("running")

	Deliveries = load("deliveries")

	Remove = load("remove")
	Unlist = load("unlist")
)

// A Script is one of the scripts, with the names that the lines on top of it give to keys and to arguments:
//
//	local LANE, JOBS, ... = unpack(KEYS)
//	local protocol, seq, ... = unpack(ARGV)
//
// Keys of a call of one's own (LANE, INFLIGHT) stand first, or behind all that have a name. Arguments without a name, such as
// those of each job, stand behind the others.
type Script struct {
	name      string
	Lua       func() *redis.Script // put together when it is first called: most programs use a few scripts
	KeyNames  []string
	ArgNames  []string
	positions func() []position // of its lines; they are read when an error names one
}

func load(name string) *Script {
	text := read(name)
	return &Script{
		name: name, Lua: sync.OnceValue(func() *redis.Script { return redis.NewScript(source(name)) }), KeyNames: unpacked(text, "KEYS"), ArgNames: unpacked(text, "ARGV"),
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

// Keys returns the KEYS of a call: own for the first names, and the queue's keys for the others.
func (s *Script) Keys(k *layout.Keys, own ...string) []string {
	list := append(make([]string, 0, len(s.KeyNames)+4), own...)
	for _, name := range s.KeyNames[len(own):] {
		list = append(list, k.Named[name])
	}
	return list
}

// An Argument is the value of an argument that has a name.
type Argument struct {
	name  string
	value any
}

// Arg returns the value of the argument of that name.
func Arg(name string, value any) Argument { return Argument{name, value} }

// Flag returns a bool as an argument of a script.
func Flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// MaxArgs bounds the arguments of a call. Some servers take no more than 4,000.
const MaxArgs = 3800

// Args returns the ARGV of a call: the values of the arguments that have names, in the script's order, with room for more behind
// them. It panics unless each of them has a value.
func (s *Script) Args(more int, values ...Argument) []any {
	list := make([]any, len(s.ArgNames), len(s.ArgNames)+more)
	for _, v := range values {
		i := slices.Index(s.ArgNames, v.name)
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
	files, err := files.ReadDir(".")
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
	b, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}

// Run runs the script and returns its reply.
func (s *Script) Run(ctx context.Context, rdb redis.Scripter, keys []string, args []any) (*Reply, error) {
	return s.Ran(ctx, rdb, s.Lua().Run(ctx, rdb, keys, args...))
}

// Ran returns the reply of a call of the script.
func (s *Script) Ran(ctx context.Context, rdb redis.Scripter, cmd *redis.Cmd) (*Reply, error) {
	v, err := cmd.Result()
	if err != nil {
		SeekMaster(ctx, rdb, err)
		return nil, layout.ErrorOf(s.located(err))
	}
	list, ok := v.([]any)
	if !ok {
		return &Reply{List: []any{v}}, nil
	}
	return &Reply{List: list}, nil
}

// SeekMaster has a Cluster client load its map of slots again, after a call without an answer. When a master has
// died, go-redis by itself does so only once a minute.
func SeekMaster(ctx context.Context, rdb any, err error) {
	var answer redis.Error
	if errors.As(err, &answer) && !redis.HasErrorPrefix(err, "CLUSTERDOWN") {
		return
	}
	if cluster, ok := rdb.(interface{ ReloadState(ctx context.Context) }); ok {
		cluster.ReloadState(ctx)
	}
}

// ErrStale says that Redis has seen a later call of the lane. This call changed nothing.
var ErrStale = errors.New("store: a later call of this lane came first")

// A Reply is read field by field; whatever the server sent, reading doesn't panic. The first
// field of the wrong type is kept as the error.
type Reply struct {
	List []any
	Err  error
}

func (r *Reply) at(i int) any {
	if i >= len(r.List) {
		r.Fail(i, "nothing")
		return nil
	}
	return r.List[i]
}

// Fail keeps as the error that field i is got, unless there is one.
func (r *Reply) Fail(i int, got string) {
	if r.Err == nil {
		r.Err = fmt.Errorf("store: field %d of the script's reply is %s: is another program writing to this queue's keys?", i, got)
	}
}

// Status reads the first field, which is one of want.
func (r *Reply) Status(want ...string) error {
	switch s := r.Str(0); {
	case r.Err != nil:
		return r.Err
	case s == "stale":
		return ErrStale
	case !slices.Contains(want, s):
		r.Fail(0, fmt.Sprintf("%.40q", s))
		return r.Err
	}
	return nil
}

// Str reads a string.
func (r *Reply) Str(i int) string {
	s, ok := r.at(i).(string)
	if !ok && r.Err == nil {
		r.Fail(i, fmt.Sprintf("%T, not a string", r.List[i]))
	}
	return s
}

// Micros reads a time, a string with its µs in decimal digits.
func (r *Reply) Micros(i int) time.Time {
	us, err := strconv.ParseInt(r.Str(i), 10, 64)
	if err != nil && r.Err == nil {
		r.Fail(i, fmt.Sprintf("%.40q, not a time in us", r.Str(i)))
	}
	return time.UnixMicro(us)
}

// Int reads an integer.
func (r *Reply) Int(i int) int64 {
	n, ok := r.at(i).(int64)
	if !ok && r.Err == nil {
		r.Fail(i, fmt.Sprintf("%T, not an integer", r.List[i]))
	}
	return n
}

// Strs reads a list of strings.
func (r *Reply) Strs(i int) []string {
	list := r.Array(i)
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for j, v := range list {
		s, ok := v.(string)
		if !ok {
			r.Fail(i, fmt.Sprintf("a list with %T, not strings", v))
		}
		out[j] = s
	}
	return out
}

// Array reads a list.
func (r *Reply) Array(i int) []any {
	list, ok := r.at(i).([]any)
	if !ok && r.Err == nil {
		r.Fail(i, fmt.Sprintf("%T, not a list", r.List[i]))
	}
	return list
}
