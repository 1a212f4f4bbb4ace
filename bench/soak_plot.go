package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
)

// writeSamples writes a table with a row for each sample.
func writeSamples(path string, samples []sample) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, "seconds,jobs,redis_used_memory_bytes,process_heap_bytes,process_resident_bytes")
	for _, s := range samples {
		fmt.Fprintf(&b, "%.1f,%d,%.0f,%.0f,%.0f\n", s.seconds, s.done, s.redis, s.heap, s.resident)
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// The plot, in its own units.
const (
	plotWide, plotHigh          = 760, 360
	plotLeft, plotTop           = 70, 40
	plotRight, plotBottom       = 20, 50
	plotInnerWide               = plotWide - plotLeft - plotRight
	plotInnerHigh               = plotHigh - plotTop - plotBottom
	plotMiB, plotMillion, lines = 1 << 20, 1e6, 4
)

// plot draws memory over jobs done, as SVG.
func plot(samples []sample, n int) []byte {
	series := []struct {
		name, colour string
		of           func(sample) float64
	}{
		{"Redis: used_memory", "#c0392b", func(s sample) float64 { return s.redis }},
		{"producer and worker: resident", "#2471a3", func(s sample) float64 { return s.resident }},
		{"of it, heap in use", "#7fb3d5", func(s sample) float64 { return s.heap }},
	}
	most := 0.0
	for _, s := range samples {
		for _, of := range series {
			most = max(most, of.of(s))
		}
	}
	top := roundUp(most / plotMiB)
	x := func(jobs float64) float64 { return plotLeft + jobs/float64(n)*plotInnerWide }
	y := func(mib float64) float64 { return plotTop + (1-mib/top)*plotInnerHigh }

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWide, plotHigh)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWide, plotHigh)
	for i := range lines + 1 {
		mib, jobs := top*float64(i)/lines, float64(n)*float64(i)/lines
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>`, plotLeft, plotWide-plotRight, y(mib), y(mib))
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%g MiB</text>`+"\n", plotLeft-6, y(mib)+4, mib)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", x(jobs), plotHigh-plotBottom+18, jobs/plotMillion)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">millions of jobs done</text>`+"\n", plotLeft+plotInnerWide/2, plotHigh-12)
	for i, of := range series {
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, of.colour)
		for _, s := range samples {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(float64(s.done)), y(of.of(s)/plotMiB))
		}
		fmt.Fprintf(&b, `"/>`+"\n"+`<text x="%d" y="24" fill="%s">%s</text>`+"\n", plotLeft+i*230, of.colour, of.name)
	}
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes()
}

// roundUp returns the least of 1, 2, 4 or 8 times a power of ten that is not below v. All divide well by four.
func roundUp(v float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(max(v, 1))))
	for _, k := range []float64{1, 2, 4, 8} {
		if k*base >= v {
			return k * base
		}
	}
	return 10 * base
}
