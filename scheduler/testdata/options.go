// Package options has a call of each kind with each option. The lines that end in "refused" must not compile.
package options

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
)

type args struct{}

func (args) Kind() string { return "args" }

func calls(ctx context.Context, s *scheduler.Scheduler, again *scheduler.UncertainError) {
	// What describes a job goes into each call.
	_, _ = s.Enqueue(ctx, args{}, scheduler.Queue("q"), scheduler.MaxAttempts(1), scheduler.Priority(0), scheduler.Timeout(0))
	_, _ = s.Enqueue(ctx, args{}, scheduler.Header("a", "b"), scheduler.Headers(nil), scheduler.TraceMode(signalbox.TraceAuto))
	_, _ = s.EnqueueMany(ctx, nil, scheduler.Queue("q"), scheduler.MaxAttempts(1), scheduler.Priority(0), scheduler.Timeout(0))
	_, _ = s.EnqueueMany(ctx, nil, scheduler.Header("a", "b"), scheduler.Headers(nil), scheduler.TraceMode(signalbox.TraceAuto))
	_ = s.Cron("e", "@daily", args{}, scheduler.Queue("q"), scheduler.MaxAttempts(1), scheduler.Priority(0), scheduler.Timeout(0))
	_ = s.Cron("e", "@daily", args{}, scheduler.Header("a", "b"), scheduler.Headers(nil), scheduler.TraceMode(signalbox.TraceAuto))
	_, _ = scheduler.Resolve(args{}, scheduler.Queue("q"), scheduler.Header("a", "b"))
	_, _ = s.Enqueue(ctx, args{}, scheduler.Group("a"), scheduler.Retain(0), scheduler.ExpireAfter(0))
	_, _ = s.EnqueueMany(ctx, nil, scheduler.Serial("a"))
	_ = s.Cron("e", "@daily", args{}, scheduler.Serial("a"))

	// What a spec says goes into no entry.
	_, _ = s.Enqueue(ctx, args{}, scheduler.At(time.Time{}), scheduler.After(0), scheduler.IfAbsent())
	_, _ = s.EnqueueMany(ctx, nil, scheduler.At(time.Time{}), scheduler.After(0), scheduler.IfAbsent())
	_, _ = scheduler.Resolve(args{}, scheduler.At(time.Time{}), scheduler.After(0), scheduler.IfAbsent())
	_ = s.Cron("e", "@daily", args{}, scheduler.At(time.Time{})) // refused
	_ = s.Cron("e", "@daily", args{}, scheduler.After(0))        // refused
	_ = s.Cron("e", "@daily", args{}, scheduler.IfAbsent())      // refused

	// What names one job goes into a call for one job.
	_, _ = s.Enqueue(ctx, args{}, scheduler.ID("a"), scheduler.EffectKey("b"), again.Again())
	_, _ = scheduler.Resolve(args{}, scheduler.ID("a"), scheduler.EffectKey("b"), again.Again())
	_ = []scheduler.Item{{Options: []scheduler.EnqueueOption{scheduler.ID("a"), scheduler.EffectKey("b"), again.Again(), scheduler.After(0), scheduler.Queue("q")}}}
	_, _ = s.EnqueueMany(ctx, nil, scheduler.ID("a"))           // refused
	_, _ = s.EnqueueMany(ctx, nil, scheduler.EffectKey("b"))    // refused
	_, _ = s.EnqueueMany(ctx, nil, again.Again())               // refused
	_ = s.Cron("e", "@daily", args{}, scheduler.ID("a"))        // refused
	_ = s.Cron("e", "@daily", args{}, scheduler.EffectKey("b")) // refused
	_ = s.Cron("e", "@daily", args{}, again.Again())            // refused

	// A time zone is that of a spec.
	_ = s.Cron("e", "@daily", args{}, scheduler.In(time.UTC))
	_, _ = s.Enqueue(ctx, args{}, scheduler.In(time.UTC))                          // refused
	_, _ = s.EnqueueMany(ctx, nil, scheduler.In(time.UTC))                         // refused
	_, _ = scheduler.Resolve(args{}, scheduler.In(time.UTC))                       // refused
	_ = scheduler.Item{Options: []scheduler.EnqueueOption{scheduler.In(time.UTC)}} // refused

	// Lists of options that several calls share.
	var all []scheduler.Option
	one, many, entry := []scheduler.EnqueueOption{scheduler.Queue("q")}, []scheduler.EnqueueManyOption{scheduler.Queue("q")}, []scheduler.CronOption{scheduler.Queue("q")}
	for _, o := range all {
		one, many, entry = append(one, o), append(many, o), append(entry, o)
	}
	for _, o := range many {
		one = append(one, o)
	}
	_, _ = s.Enqueue(ctx, args{}, append(one, again.Again())...)
	_, _ = s.EnqueueMany(ctx, nil, many...)
	_ = s.Cron("e", "@daily", args{}, entry...)
	_, _ = s.EnqueueMany(ctx, nil, one...)     // refused
	_, _ = s.Enqueue(ctx, args{}, entry...)    // refused
	_ = s.Cron("e", "@daily", args{}, one...)  // refused
	_ = s.Cron("e", "@daily", args{}, many...) // refused
}
