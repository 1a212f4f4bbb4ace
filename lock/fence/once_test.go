package fence

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"
)

// swept is a transaction beside a sweep: the record that stops the first INSERT is deleted before it can be read.
type swept struct{ inserts int }

func (c *swept) exec(context.Context, string, ...any) (int64, error) { return 0, nil }

func (c *swept) scan(_ context.Context, query string, _, into []any) error {
	switch {
	case strings.Contains(query, "signalbox_horizon"):
		*into[1].(*int64) = 1
		return nil
	case strings.HasPrefix(query, "INSERT"):
		c.inserts++
		if c.inserts > 1 {
			*into[0].(*int64) = 7 // the transaction
			return nil
		}
	}
	return sql.ErrNoRows
}

// A later job with the key of one whose record is swept at this moment has its effect.
func TestOnceBesideASweep(t *testing.T) {
	t.Parallel()
	g := &Guard{dialect: PostgreSQL, conn: &swept{}}
	had := 0
	ctx := WithEffect(t.Context(), Effect{Key: "k", Born: time.Now()})
	if err := g.Once(ctx, "s", func() error { had++; return nil }); err != nil || had != 1 {
		t.Errorf("%v; the effect was had %d times", err, had)
	}
}
