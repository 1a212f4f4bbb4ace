package store

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// bare is what Redis has to do for new jobs at the least, by their kind in KEYS[1]: it finds out whether they are there, and writes them where the
// script of an enqueue writes them. It judges nothing. ARGV has an id, a record, a unique key and a member of LINED for each job.
const bare = `
local ids, records, keys, holders, lined = {}, {}, {}, {}, {}
for i = 1, #ARGV, 4 do
  ids[#ids + 1] = ARGV[i]
  records[#records + 1] = ARGV[i]
  records[#records + 1] = ARGV[i + 1]
  if KEYS[1] == 'unique' then
    keys[#keys + 1] = ARGV[i + 2]
    holders[#holders + 1] = ARGV[i + 2]
    holders[#holders + 1] = ARGV[i]
  elseif KEYS[1] == 'grouped' then
    lined[#lined + 1] = '0'
    lined[#lined + 1] = ARGV[i + 3]
  end
end
redis.call('HMGET', KEYS[2], unpack(ids))
if KEYS[1] == 'unique' then
  redis.call('HMGET', KEYS[3], unpack(keys))
  redis.call('HSET', KEYS[3], unpack(holders))
end
if KEYS[1] == 'grouped' then
  redis.call('ZADD', KEYS[4], unpack(lined))
else
  redis.call('RPUSH', KEYS[5], unpack(ids))
end
redis.call('HSET', KEYS[2], unpack(records))
return 1`

// BenchmarkEnqueueCost says how long Redis computes for a job of a bulk, within its script: plain, with a unique key of its own, and in one of 100
// groups. "commands" is a script that only runs the commands which such jobs need, and "script" is that of an enqueue. What they differ by is spent
// in Lua. An operation is one job.
func BenchmarkEnqueueCost(b *testing.B) {
	rdb := redistest.New(b).Client()
	for _, kind := range []string{"plain", "unique", "grouped"} {
		b.Run(kind+"/commands", func(b *testing.B) {
			r := newQueue(b, rdb)
			script := redis.NewScript(bare)
			keys := []string{kind, r.keys.Prefix + "bare:jobs", r.keys.Prefix + "bare:unique", r.keys.Prefix + "bare:lined", r.keys.Prefix + "bare:ready"}
			b.Cleanup(func() { r.must(rdb.Del(bg, keys...).Err()) })
			r.must(script.Load(bg, rdb).Err())
			computed(b, r, func(n int) {
				args := make([]any, 0, 4*MaxSpecial)
				for i := range n {
					id := NewID()
					args = append(args, id, strings.Repeat("r", 20+len("bench")+110), "bench "+id, fmt.Sprintf("1gtenant-%02d\x01%016d%s", i%100, i, id))
				}
				r.must(script.EvalSha(bg, rdb, keys, args...).Err())
			})
		})
		b.Run(kind+"/script", func(b *testing.B) {
			r := newQueue(b, rdb)
			lane, payload := r.NewLane(), make([]byte, 100)
			computed(b, r, func(n int) {
				items := make([]Item, 0, MaxSpecial)
				for i := range n {
					job := signalbox.Job{ID: NewID(), Kind: "bench", Payload: payload}
					if kind == "grouped" {
						job.Group = fmt.Sprintf("tenant-%02d", i%100)
					}
					item, err := NewItem(&job, When{})
					r.must(err)
					if kind == "unique" {
						item.Unique(Unique{Key: UniqueKey("bench", job.ID, false), Scope: UntilEnded})
					}
					items = append(items, item)
				}
				lane.Next()
				_, err := r.Enqueue(bg, lane, items)
				r.must(err)
			})
		})
	}
}

var evalsha = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+),`)

// computed has put enqueue b.N jobs, in calls of MaxSpecial, and reports the microseconds for which Redis computed for each, by its own account.
func computed(b *testing.B, r *rig, put func(n int)) {
	put(MaxSpecial) // the script is loaded, the lane is there
	r.must(r.rdb.ConfigResetStat(bg).Err())
	b.ResetTimer()
	for left := b.N; left > 0; left -= MaxSpecial {
		put(min(left, MaxSpecial))
	}
	b.StopTimer()
	stat := evalsha.FindStringSubmatch(r.rdb.Info(bg, "commandstats").Val())
	if stat == nil {
		b.Fatal("INFO has no statistics of EVALSHA")
	}
	us, err := strconv.ParseFloat(stat[1], 64)
	r.must(err)
	b.ReportMetric(us/float64(b.N), "us/job")
}
