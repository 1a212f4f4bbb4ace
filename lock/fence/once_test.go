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

func (c *swept) exec(_ context.Context, query string, _ ...any) (int64, error) {
	if strings.HasPrefix(query, "INSERT") {
		c.inserts++
	}
	return int64(c.inserts - 1), nil
}

func (c *swept) scan(_ context.Context, query string, _, into []any) error {
	if strings.Contains(query, "signalbox_horizon") {
		*into[1].(*int64) = 1
		return nil
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
