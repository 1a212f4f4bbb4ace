package scripts

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// What the scripts read in what a session holds is what testdata/deliveries.txt of package facts says of it. Go is tested against the same file there.
func TestDeliveryVectors(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	text, err := os.ReadFile("../facts/testdata/deliveries.txt")
	if err != nil {
		t.Fatal(err)
	}
	var values []any
	var want []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var v struct {
			Value, Token, Flags, Group, Key, Links string
			Cancelled                              bool
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var token, group any
		if v.Token != "" {
			token = v.Token
		}
		if v.Group != "" {
			group = v.Group
		}
		values = append(values, v.Value)
		want = append(want, shown(token, v.Flags, v.Group, v.Key, v.Links)+" "+shown(group, v.Cancelled, v.Token != "", false))
	}
	for i, got := range c.Run(`
for _, value in ipairs(given) do
  local token, flags, group, key, links = delivery_fields(value)
  show(token, flags, group, key, links, delivery_group(value), is_marked(value), owns(value, token or '7'), owns(value, '1'))
end`, values...) {
		if got != want[i] {
			t.Errorf("in %q the scripts read\n %s, want\n %s", values[i], got, want[i])
		}
	}
	c.shows("show(delivery_fields(false))\nshow(owns(false, '7'), is_marked(false), delivery_group(false))",
		shown(nil, "", "", "", ""), shown(false, false, nil))
}

// A mark goes behind the flags, and leaves all else as it is.
func TestChapterMarkCancelled(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	key := c.keys.Inflight("s1")
	for value, want := range map[string]string{
		"7": "7 c", "7 s2": "7 s2c", "7  ga": "7 c ga", "7 s2 ga k 1": "7 s2c ga k 1", "7   k": "7 c  k", "7   k\x02rf": "7 c  k\x02rf",
		"7 s2c ga k": "7 s2c ga k", "x": "0 c", "x y z": "0 c", "": "0 c",
	} {
		c.must(c.rdb.HSet(bg, key, "a", value).Err())
		c.must(c.rdb.Del(bg, c.keys.Cancels).Err())
		token, mark := strings.Fields(want)[0], shown(strings.Fields(want)[0]+" why")
		if value == want { // it has a mark already
			mark = "false"
		}
		c.shows("KEYS[#KEYS + 1] = "+luaString(key)+`
local acts = new_acts(1, '')
mark_cancelled(acts, {id = 'a', value = `+luaString(value)+`, place = #KEYS}, 'why')
show(redis.call('HGET', KEYS[#KEYS], 'a'), redis.call('HGET', CANCELS, 'a'), acts.told[#KEYS][1])`,
			shown(want)+" "+mark+" "+shown("a "+token))
	}
}
