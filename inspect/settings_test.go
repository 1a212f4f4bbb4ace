package inspect_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// An operator's settings say who set them, can be reset, and stay where the queue is imported, beside workers with the same Config.
func TestSettingsGoAlong(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	namespace := redistest.Name(t)
	ins, err := inspect.New(rdb, inspect.Config{Namespace: namespace, Operator: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	running := func(n int) signalbox.Limits { return signalbox.Limits{Running: n} }
	config := settings.Wanted{Limits: running(5), MaxLength: 9, LimitsOf: map[string]signalbox.Limits{"acme": running(2)}}
	tell := func(queue string) {
		t.Helper()
		q := store.New(rdb, namespace, queue)
		if err := q.Presence().Register(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Settings().Tell(ctx, "w-1", config); err != nil {
			t.Fatal(err)
		}
	}
	tell("a")
	if err := errors.Join(ins.SetLimits(ctx, "a", running(7)), ins.SetLimitsOf(ctx, "a", "acme", running(3))); err != nil {
		t.Fatal(err)
	}
	limits := func(queue string) inspect.Setting {
		t.Helper()
		all, err := ins.Settings(ctx, queue)
		if err != nil || len(all) != 6 || all[0].Name != "Limits" {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	if s := limits("a"); s.Value != "7 running" || s.Config != "5 running" || s.Worker || s.Setter.Name != "ann" || s.At.IsZero() {
		t.Errorf("%+v", s)
	}
	var file bytes.Buffer
	if _, err := ins.Export(ctx, "a", &file, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ins.Import(ctx, "b", &file, inspect.Importing{Settings: true}); err != nil {
		t.Fatal(err)
	}
	tell("b")
	of, err := ins.LimitsOf(ctx, "b")
	if s := limits("b"); err != nil || s.Value != "7 running" || s.Config != "5 running" || of["acme"] != running(3) {
		t.Errorf("%+v, %+v, %v", s, of, err)
	}
	if changed, err := ins.Reset(ctx, "b", "Limits"); err != nil || !changed {
		t.Errorf("reset: %v, %v", changed, err)
	}
	if changed, err := ins.ResetLimitsOf(ctx, "b", "acme"); err != nil || !changed {
		t.Errorf("reset of a group: %v, %v", changed, err)
	}
	of, err = ins.LimitsOf(ctx, "b")
	if s := limits("b"); err != nil || s.Value != "5 running" || of["acme"] != running(2) {
		t.Errorf("%+v, %+v, %v", s, of, err)
	}
	changes, err := ins.Changes(ctx, "b")
	if err != nil || len(changes) < 2 || changes[0].Field != "limits of acme" || changes[0].Setter.Name != "ann" || changes[1].Field != "limits" || changes[1].Before != "7 0 0 0" || changes[1].After != "5 0 0 0" {
		t.Errorf("%+v, %v", changes, err)
	}
	for _, name := range []string{"slots", ""} {
		if _, err := ins.Reset(ctx, "b", name); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("reset of %q: %v", name, err)
		}
	}
	for what, call := range map[string]func() error{
		"Settings": func() error { _, err := ins.Settings(ctx, "none"); return err }, "Changes": func() error { _, err := ins.Changes(ctx, "none"); return err },
		"Reset": func() error { _, err := ins.Reset(ctx, "none", "Limits"); return err }, "ResetLimitsOf": func() error { _, err := ins.ResetLimitsOf(ctx, "none", "g"); return err },
	} {
		if err := call(); !errors.Is(err, inspect.ErrNoQueue) {
			t.Errorf("%s of a queue that isn't there: %v", what, err)
		}
	}
	wrong := bytes.NewBufferString(`{"signalbox":"export","format":1,"namespace":"n","queue":"q","at":"","settings":{"paused":false,"applied":{"limits":"1\n2"}}}` + "\n")
	if _, err := ins.Import(ctx, "c", wrong, inspect.Importing{Settings: true}); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("import of a wrong value: %v", err)
	}
}

// Each setting that a Config can say, and slots, are in a file, and what a queue has that is made from it.
func TestEverySettingGoesAlong(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	namespace := redistest.Name(t)
	ins, err := inspect.New(rdb, inspect.Config{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	limits, kept := signalbox.Limits{Running: 3, Rate: signalbox.Rate{Jobs: 5, Per: time.Second, Burst: 2}}, signalbox.Retention{Jobs: 5, Bytes: 6, Age: time.Hour}
	config := settings.Wanted{Limits: limits, GroupLimits: limits, MaxLength: 9, LimitsOf: map[string]signalbox.Limits{"acme": limits}, CopyDead: "copies", Retention: kept, Completed: kept}
	for i := range reflect.TypeFor[settings.Wanted]().NumField() {
		if reflect.ValueOf(config).Field(i).IsZero() {
			t.Errorf("the test doesn't set %s", reflect.TypeFor[settings.Wanted]().Field(i).Name)
		}
	}
	q := store.New(rdb, namespace, "a")
	if _, err := q.Settings().Tell(ctx, "w-1", config); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Settings().SetSlots(ctx, 7); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := ins.Export(ctx, "a", &file, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ins.Import(ctx, "b", &file, inspect.Importing{Settings: true}); err != nil {
		t.Fatal(err)
	}
	settings := func(queue string) (fields []string) {
		t.Helper()
		all, err := rdb.HGetAll(ctx, "signalbox:{"+namespace+":"+queue+"}:settings").Result()
		if err != nil {
			t.Fatal(err)
		}
		for field, value := range all {
			if field != "changes" && field != "paused" && field != "limits_of" && !strings.HasPrefix(field, "of ") { // the file has what was applied, and not who told it
				fields = append(fields, field+" "+value)
			}
		}
		slices.Sort(fields)
		return fields
	}
	if got, want := settings("b"), settings("a"); len(want) != 8 || !slices.Equal(got, want) { // layout, slots, and those of Wanted, of which LimitsOf is in another hash
		t.Errorf("got %v, want %v", got, want)
	}
	of, err := ins.LimitsOf(ctx, "b")
	if err != nil || of["acme"] != limits {
		t.Errorf("limits of single groups: %+v, %v", of, err)
	}
}
