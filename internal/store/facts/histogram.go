package facts

import (
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// A Histogram counts durations by their length. Bucket i has those of more than 2^(i-1) ms and at most 2^i ms. The first one has all up to
// 1 ms, and the last one all that took longer than 2^22 ms, which is about 70 minutes.
type Histogram [24]int64

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	if d <= 0 { // a clock was set back
		h[0]++
		return
	}
	h[min(bits.Len64(uint64((d-1)/time.Millisecond)), len(h)-1)]++
}

// Merge adds what another histogram has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o {
		h[i] += n
	}
}

// HistogramBound returns the longest duration that bucket i counts; of the last bucket, the longest that the one before counts.
func HistogramBound(i int) time.Duration {
	return time.Millisecond << min(i, len(Histogram{})-2)
}

// Text returns the histogram as scripts read it: "bucket:number", with commas between, without empty buckets.
func (h *Histogram) Text() string {
	var b []byte
	for i, n := range h {
		if n == 0 {
			continue
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, n, 10)
	}
	return string(b)
}

// Parse reads what text returns. It reports whether it could.
func (h *Histogram) Parse(text string) bool {
	if text == "" {
		return true
	}
	for part := range strings.SplitSeq(text, ",") {
		bucket, number, _ := strings.Cut(part, ":")
		i, err := strconv.Atoi(bucket)
		n, err2 := strconv.ParseInt(number, 10, 64)
		if err != nil || err2 != nil || i < 0 || i >= len(h) || n < 0 {
			return false
		}
		h[i] = n
	}
	return true
}
