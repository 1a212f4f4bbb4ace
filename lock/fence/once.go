package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// maxResult bounds a stored result, in bytes.
const maxResult = 1 << 20

// Once calls effect, unless this step of the context's job has been done. It notes the step in the transaction. So
// the two are committed together, or not at all. step names the step within the job: 1 to 128 bytes of printable ASCII. Each
// step of a handler has a name of its own.
//
// Another delivery that is about to do the same step waits for this transaction, or fails with an error that
// [DB.InTx] and [Replay] replay.
//
// If the record may have been swept, the error is an [ErrForgotten]: nobody knows whether the effect was had, and it isn't had now.
//
// An error of effect is returned as it is, and the transaction must be rolled back.
func (g *Guard) Once(ctx context.Context, step string, effect func() error) error {
	_, _, err := g.once(ctx, step, func() ([]byte, error) { return nil, effect() })
	return err
}

// Result is [Guard.Once] for an effect that has a result. The result is stored with the record, as JSON of at most 1 MiB. If the step has been
// done, Result returns what it returned then. Change T with care: results of earlier releases must still decode.
func Result[T any](ctx context.Context, g *Guard, step string, effect func() (T, error)) (T, error) {
	var fresh T
	stored, done, err := g.once(ctx, step, func() ([]byte, error) {
		var err error
		if fresh, err = effect(); err != nil {
			return nil, err
		}
		b, err := json.Marshal(fresh)
		if err != nil {
			return nil, fmt.Errorf("fence: the result of step %q, a %T, doesn't encode as JSON; the effect must be rolled back: %w", step, fresh, err)
		}
		if len(b) > maxResult {
			return nil, invalid("the result of step %q has %d bytes of JSON; want at most %d. The effect must be rolled back", step, len(b), maxResult)
		}
		return b, nil
	})
	if err != nil || !done {
		return fresh, err
	}
	if err := json.Unmarshal(stored, &fresh); err != nil {
		var none T
		return none, g.fail(fmt.Errorf("fence: the stored result of step %q doesn't decode as %T; the effect was had: %w", step, none, err))
	}
	return fresh, nil
}

// once returns the stored result if the step has been done.
func (g *Guard) once(ctx context.Context, step string, effect func() ([]byte, error)) (stored []byte, done bool, err error) {
	if err := g.ready(ctx); err != nil {
		return nil, false, err
	}
	e, err := effectOf(ctx)
	if err == nil && (len(step) > maxStep || !printable(step)) {
		err = invalid("the step %.200q; want 1 to %d bytes of printable ASCII without spaces", step, maxStep)
	}
	if err != nil {
		return nil, false, g.fail(err)
	}
	g.used = true
	defer func() {
		if p := recover(); p != nil { // the record is there, the effect perhaps not
			_ = g.fail(errors.New("fence: the effect has panicked; roll the transaction back"))
			panic(p)
		}
	}()
	o := &once{g: g, st: g.dialect.statements(), e: e, step: step}
	fresh, err := o.begin(ctx)
	if err != nil {
		return nil, false, g.fail(err)
	}
	if !fresh {
		return o.stored, true, nil
	}
	result, err := effect()
	if err == nil {
		err = g.ready(ctx) // it may have ignored the error of a statement
	}
	if err == nil && result != nil {
		err = o.exec(ctx, o.st.result, append([]any{result}, o.key()...)...)
	}
	return nil, false, g.fail(err)
}

// A once is one step of an effect in a transaction.
type once struct {
	g      *Guard
	st     *statements
	e      Effect
	step   string
	stored []byte // the result, if the step has been done
}

func (o *once) key() []any { return []any{o.e.Namespace, o.e.Key, o.step} }

// begin records the step, and reports whether that is new. From then on no sweep takes it away until the transaction ends.
func (o *once) begin(ctx context.Context) (fresh bool, err error) {
	born := o.e.Born.UnixMicro()
	if o.g.dialect != SQLite { // there the record's statement looks at the horizon
		horizon, err := o.horizon(ctx)
		if err != nil {
			return false, err
		}
		if born < horizon {
			return false, o.known(ctx, horizon)
		}
	}
	for n := 1; ; n++ {
		rows, err := o.g.write(ctx, o.st.record, append(o.key(), born, o.e.Token)...)
		switch {
		case err != nil && o.g.dialect.faultOf(err) == faultDuplicate:
		case err != nil:
			return false, o.explain(err)
		case rows > 0:
			return true, nil
		}
		// In PostgreSQL a sweep may delete an older job's record of the same key between the two statements.
		if err := o.known(ctx, 0); !errors.Is(err, errNeither) || n == recordTries {
			return false, err
		}
	}
}

// recordTries bounds how often a record is written that is neither new nor there.
const recordTries = 3

var errNeither = errors.New("the record is neither new nor there; is there a trigger on signalbox_once?")

// known reads the record of a step that has been done. If there is none, the effect is older than the horizon.
func (o *once) known(ctx context.Context, horizon int64) error {
	var born int64
	err := o.g.conn.scan(ctx, o.st.look, o.key(), []any{&born, &o.stored})
	switch {
	case isNoRows(err) && o.g.dialect == SQLite:
		if horizon, err = o.horizon(ctx); err != nil {
			return err
		}
	case isNoRows(err):
	case err != nil:
		return o.explain(err)
	case born < o.e.Born.UnixMicro():
		// A later job has the same key. Its deliveries need the record for as long as the job may live.
		return o.exec(ctx, o.st.renew, append([]any{o.e.Born.UnixMicro()}, o.key()...)...)
	default:
		return nil
	}
	if horizon <= o.e.Born.UnixMicro() {
		return fmt.Errorf("fence: %s: %w", o.doing(), errNeither)
	}
	return fmt.Errorf("%w: effect %s, step %q, was first asked for at %v, and records before %v may be gone", ErrForgotten, o.e.Key, o.step, timeOf(o.e.Born.UnixMicro()), timeOf(horizon))
}

// horizon reads the horizon. No sweep raises it until the transaction ends.
func (o *once) horizon(ctx context.Context) (int64, error) {
	var horizon, within int64
	switch err := o.g.conn.scan(ctx, o.st.horizon, nil, []any{&horizon, &within}); {
	case isNoRows(err):
		return 0, noHorizon(o.g.dialect, o.doing())
	case err != nil:
		return 0, o.explain(err)
	case within == 0:
		return 0, o.explain(ErrNoTransaction)
	}
	return horizon, nil
}

func noHorizon(d Dialect, doing string) error {
	return fmt.Errorf("%w: %s: signalbox_horizon has no row with id 1; run the statements of fence.Schema(fence.%v)", ErrSchema, doing, d)
}

func (o *once) exec(ctx context.Context, query string, args ...any) error {
	if _, err := o.g.conn.exec(ctx, query, args...); err != nil {
		return o.explain(err)
	}
	return nil
}

func (o *once) doing() string           { return fmt.Sprintf("effect %s, step %q", o.e.Key, o.step) }
func (o *once) explain(err error) error { return o.g.dialect.explain(o.doing(), err) }
