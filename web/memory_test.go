package web_test

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/web"
)

// The page of a queue says how much memory it takes, if Redis does.
func TestMemoryOfAQueue(t *testing.T) {
	t.Parallel()
	without, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { without.Close() })
	rdb := redis.NewClient(&redis.Options{Addr: without.Addr()})
	t.Cleanup(func() { rdb.Close() })
	for _, x := range []struct {
		rdb  redis.UniversalClient
		want []string
	}{
		{redistest.New(t).Client(), []string{"<dt>Memory in Redis</dt><dd>about 1", " KiB: records of jobs 1", ", where they are "}},
		{rdb, []string{"<dt>Memory in Redis</dt><dd>not known"}},
	} {
		s := newStage(t, x.rdb)
		s.queue("mail", "worker").put(signalbox.Job{ID: "a", Kind: "k", Payload: []byte(`"` + strings.Repeat("x", 100<<10) + `"`)}, store.When{})
		page := httptest.NewRecorder()
		s.pages(web.Config{}).ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), "GET", "/queue?name=mail", nil))
		for _, want := range x.want {
			if !strings.Contains(page.Body.String(), want) {
				t.Errorf("the page lacks %q: %s", want, page.Body)
			}
		}
	}
}
