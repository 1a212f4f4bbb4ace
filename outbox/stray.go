package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// stray moves rows whose shard has a name that is none to the dead rows: they belong to no queue, so that nobody could ever send them.
func (r *Relay) stray(ctx context.Context, name string) error {
	var rows []int64
	err := r.inTx(ctx, func(ctx context.Context, t dbTx) error {
		rows = nil
		var found, batches int64
		if err := t.scan(ctx, "SELECT version FROM signalbox_outbox_box WHERE one = 1", nil, &found); err != nil {
			return err
		}
		if found != version { // then the name may have a meaning
			return fmt.Errorf("outbox: %w: the tables are of version %d by now; this release needs version %d", ErrSchema, found, version)
		}
		if err := t.scan(ctx, "SELECT COUNT(*) FROM signalbox_outbox_batch WHERE shard = ? AND sent = 0", []any{name}, &batches); err != nil {
			return err
		}
		if batches > 0 {
			return fmt.Errorf("outbox: the table signalbox_outbox_batch has %d batches of a shard %.100q; want namespace:queue/number: is another program writing to the tables?", batches, name)
		}
		err := t.each(ctx, fmt.Sprintf("SELECT pos FROM signalbox_outbox WHERE batch = 0 AND shard = ? ORDER BY pos LIMIT %d{skip}", maxBatchRows), []any{name}, func(scan func(...any) error) (bool, error) {
			var pos int64
			err := scan(&pos)
			rows = append(rows, pos)
			return true, err
		})
		if err != nil {
			return err
		}
		for _, pos := range rows {
			if err := t.bury(ctx, pos, fmt.Sprintf("the shard %.100q is none; want namespace:queue/number", name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || len(rows) == 0 {
		return err
	}
	r.metrics.Relayed(ctx, "", "", telemetry.RowDead, len(rows))
	if r.troubles.tell("stray "+name, time.Now()) {
		r.log.LogAttrs(ctx, slog.LevelError, "outbox: rows are of no queue, since their shard is none; they are in the table signalbox_outbox_dead now",
			slog.String("shard", fmt.Sprintf("%.100q", name)), slog.Int("rows", len(rows)), slog.Int64("pos", rows[0]))
	}
	return nil
}
