package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

// The page of Redis says how far its clock is, what it holds, and what is not known; and nothing to a user of some queues.
func TestRedisPage(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		at   time.Duration // when the clock of Redis was read, after the look began
		want string
	}{
		{10 * time.Millisecond, "as that of this process, to within 20 ms"}, {5 * time.Second, "at least 5 s ahead of this process, at most 5 s"}, {-time.Minute, "at least 1 m behind this process, at most 1 m"},
	} {
		s := &state{began: noon, took: 30 * time.Millisecond, at: noon.Add(x.at), clock: true, queues: []inspect.Queue{{Name: "a", Ready: 1200, Dead: 3}, {Name: "b", Ready: 34}}, missing: []string{"statistics of <b>"}, why: []error{errNoPage}}
		v := &visit{pages: &pages{}, Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/redis", nil), scope: Scope{All: true}, state: s}
		a, err := v.redis()
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := templates[a.name].ExecuteTemplate(&b, "shell", v.shell(&a)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{x.want, ">30 ms<", ">1,234<", ">3<", "not known", "statistics of &lt;b&gt;", "answers, and some could not be read"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("it lacks %q: %s", want, b.String())
			}
		}
		v.scope = Scope{Queue: func(string) bool { return true }}
		if _, err := v.redis(); err == nil {
			t.Error("a user of some queues sees it")
		}
	}
}
