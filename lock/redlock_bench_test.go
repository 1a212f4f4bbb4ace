package lock

import (
	"fmt"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func BenchmarkRedlockCycle(b *testing.B) {
	servers := masters(b, 5)
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			name := redistest.Name(b)
			cycles(b, redlockOn(b, servers, roomy), n, func(i int) string { return fmt.Sprint(name, i) })
		})
	}
	b.Run("contended=16", func(b *testing.B) {
		name := redistest.Name(b)
		cycles(b, redlockOn(b, servers, roomy), 16, func(int) string { return name })
	})
}
