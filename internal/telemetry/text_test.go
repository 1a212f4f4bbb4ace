package telemetry

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Whatever another program wrote to Redis, it can be exported.
func TestJobsOfOtherPrograms(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", maxName)
	for name, c := range map[string]struct{ redis, shown string }{
		"plain":    {"email.welcome", "email.welcome"},
		"UTF-8":    {"größe", "größe"},
		"as long":  {long[:maxName], long[:maxName]},
		"long":     {long, long[:maxName-4] + "..."},
		"bad":      {strings.Repeat("\xffa", maxName), strings.Repeat("\uFFFDa", 49) + "..."},
		"no UTF-8": {"a\xff\xfe.", "a\uFFFD."},
		"no text":  {"\xff", "\uFFFD"},
	} {
		m, spans := messaging(Who{})
		j := Job{ID: c.redis, Kind: c.redis, Queue: "q", Attempt: 1, MaxAttempts: 1}
		d := m.Delivery(&j, 1, time.Second)
		ctx, process := d.StartProcess(t.Context(), nil)
		d.StartSettle(ctx, "completed", time.Now(), time.Time{}).End()
		process.End()
		m.StartReclaim(ctx, j, settleReturned, nil, time.Now()).End()
		for _, span := range spans.GetSpans() {
			set := attribute.NewSet(span.Attributes...)
			for _, key := range []attribute.Key{jobKind, "messaging.message.id"} {
				if v, _ := set.Value(key); v.AsString() != c.shown || !utf8.ValidString(v.AsString()) {
					t.Errorf("%s: %s of %q is %q, want %q", name, key, span.Name, v.AsString(), c.shown)
				}
			}
		}
		mp, reader := meters()
		NewConsumerMetrics(mp, Who{}).Settled(t.Context(), "q", c.redis, settleDead, settleDead, 0)
		for _, p := range collect(t, reader)["signalbox.jobs.settled"].Data.(metricdata.Sum[int64]).DataPoints {
			if v, _ := p.Attributes.Value(jobKind); v.AsString() != c.shown {
				t.Errorf("%s: metrics have the kind %q, want %q", name, v.AsString(), c.shown)
			}
		}
	}
}

// A name that is already clean costs no memory.
func TestCleanAllocations(t *testing.T) {
	id := strings.Repeat("x", maxName)
	if n := testing.AllocsPerRun(100, func() { _ = clean(id) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// ParseSpan returns a span context that FormatSpan wrote, and nothing else.
func TestParseSpan(t *testing.T) {
	t.Parallel()
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if got := FormatSpan(ParseSpan(good)); got != good {
		t.Errorf("it is read as %q", got)
	}
	for _, text := range []string{
		"", "\x00", "00", good[:len(good)-1], good + "0", strings.ToUpper(good), "ff" + good[2:],
		"00-" + strings.Repeat("0", 32) + good[35:], strings.Repeat("\xff", 1<<20), good + "-\xff",
	} {
		if sc := ParseSpan(text); sc.IsValid() {
			t.Errorf("%.80q is read as %s", text, FormatSpan(sc))
		}
	}
}
