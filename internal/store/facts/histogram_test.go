package facts

import (
	"math"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int{
		-time.Second: 0, 0: 0, 1: 0, time.Millisecond: 0, time.Millisecond + 1: 1, 2 * time.Millisecond: 1, 3 * time.Millisecond: 2, 4 * time.Millisecond: 2,
		4*time.Millisecond + 1: 3, time.Second: 10, time.Hour: 22, 1 << 22 * time.Millisecond: 22, 1<<22*time.Millisecond + 1: 23, math.MaxInt64: 23,
	} {
		var h, parsed Histogram
		h.Add(d)
		var one Histogram
		one[want] = 1
		if h != one {
			t.Errorf("%v is counted as %v", d, h)
		}
		if want < 23 && d > HistogramBound(want) || want > 0 && d <= HistogramBound(want-1) {
			t.Errorf("%v is in bucket %d, whose bound is %v", d, want, HistogramBound(want))
		}
		if !parsed.Parse(h.Text()) || parsed != h {
			t.Errorf("%q is read as %v", h.Text(), parsed)
		}
	}
	for _, text := range []string{"x", "1", "1:", "24:1", "-1:1", "1:-1", "1:1,", "1:1:1", "1:99999999999999999999"} {
		if new(Histogram).Parse(text) {
			t.Errorf("%q can be read", text)
		}
	}
}

func BenchmarkHistogramAdd(b *testing.B) {
	b.ReportAllocs()
	var h Histogram
	for i := range b.N {
		h.Add(time.Duration(i) << 10)
	}
}
