package store

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// An error of a script names the line where it arose, in the file that a person reads.
func TestErrorsNameTheLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key   string // has a value of another type
		call  func(r *rig) error
		want  string // what the file, or files, of the line are
		code  string // of the line: it has this
		names string // the key that the error names, of a line that was written for the script
	}{
		"a key that is checked": {"dead", func(r *rig) error {
			_, err := r.act(bg, Act{}, nil, []target{{}})
			return err
		}, "chapter keys (script act)", "has a line for each key", "DEAD"},
		"a chapter": {"settings", func(r *rig) error {
			_, err := r.Enqueue(bg, r.producer, []Item{r.item("a", When{}, signalbox.PriorityNormal)})
			return err
		}, "chapter settings (script enqueue)", "redis.call('HMGET', settings,", ""},
		"a chapter of a claim": {"settings", func(r *rig) error {
			_, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: "s1", Want: 1})
			return err
		}, "chapter settings (script claim)", "redis.call('HMGET', settings,", ""},
		"a script": {"jobs", func(r *rig) error {
			_, _, _, err := r.Looks().Show(bg, "a")
			return err
		}, "script show", "redis.call('HGET', JOBS, ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := unchecked(t, redistest.Start(t).Client())
			r.producer.Next()
			r.lane.Next()
			r.must(r.rdb.Set(bg, r.keys.Named[strings.ToUpper(c.key)], "other", 0).Err())
			err := c.call(r)
			if err == nil || !redis.HasErrorPrefix(err, "WRONGTYPE") && redistest.Start(t).Real() || !strings.HasPrefix(err.Error(), "WRONGTYPE Operation against a key") {
				t.Fatalf("%v, want WRONGTYPE", err)
			}
			found := regexp.MustCompile(`: (chapter|script|step) (\w+), line (\d+(?:, key \w+)?)( \(script \w+\))?$`).FindStringSubmatch(err.Error())
			if found == nil || found[1]+" "+found[2]+found[4] != c.want {
				t.Fatalf("%v, want one at a line of %s", err, c.want)
			}
			digits, key, _ := strings.Cut(found[3], ", key ")
			n, _ := strconv.Atoi(digits)
			same(t, "the key", key, c.names)
			file := map[string]string{"chapter": "chapters/"}[found[1]] + found[2]
			if line := strings.Split(fileOf(t, file), "\n")[n-1]; !strings.Contains(line, c.code) {
				t.Errorf("%v: that line is %q, want one with %s", err, line, c.code)
			}
		})
	}
}
