// Package stagetest tests that an example does what its README.md says.
package stagetest

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/examples/internal/stage"
)

// Follows runs an example on the Redis at a URL, and on one inside the process. Its result must have no problem, and it must print what README.md in this
// folder shows, whatever the numbers.
func Follows[R stage.Result](t *testing.T, url, name string, run func(ctx context.Context, out io.Writer, db *stage.Redis) (R, error)) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for where, url := range map[string]string{"embedded": "", "REDIS_URL": url} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			r, err := stage.Run(t.Context(), &out, url, name, run)
			if err != nil || r.Problem() != nil {
				t.Fatalf("%v: %v, %v\n%s", r, err, r.Problem(), &out)
			}
			if lines := stage.Missing(string(readme), out.String()+r.String()); lines != nil {
				t.Errorf("README.md says that it prints %q, and it prints\n%s%v", lines, &out, r)
			}
		})
	}
}
