package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

// The page of workers says which handler is stuck, with its stack, and which worker is gone.
func TestWorkersInTrouble(t *testing.T) {
	t.Parallel()
	s := &state{at: noon, workers: []inspect.Worker{{
		ID: "w<1>", Stopping: true, Sessions: []inspect.Session{{Queue: "a", Left: time.Second}, {Queue: "b", Until: noon.Add(-time.Minute), Left: -time.Minute}},
		Running: []inspect.RunningJob{{Queue: "a", ID: "j", Kind: "k", Since: noon.Add(-time.Hour), Stuck: &inspect.Stuck{Since: noon.Add(-2 * time.Minute), Stack: "main.<f>\n\tmain.go:7", SlotFreed: true}}},
	}}}
	v := &visit{pages: &pages{}, Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/workers", nil), scope: Scope{All: true}, state: s}
	a, err := v.workers()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := templates[a.name].ExecuteTemplate(&b, "shell", v.shell(&a)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"w&lt;1&gt;", "main.&lt;f&gt;\n\tmain.go:7", "Another job has its slot", ">gone<", ">ends<", "over for 1 m", ">2 m<", ">1 h<"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it lacks %q: %s", want, b.String())
		}
	}
}
