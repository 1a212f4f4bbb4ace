package batch

import (
	"slices"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestTake(t *testing.T) {
	t.Parallel()
	odd := func(p *int) bool { return *p%2 == 1 }
	values := func(ps []*int) (vs []int) {
		for _, p := range ps {
			vs = append(vs, *p)
		}
		return vs
	}
	for name, c := range map[string]struct {
		n, most     int
		taken, rest []int
	}{
		"nothing":      {0, 3, nil, nil},
		"all":          {4, 3, []int{1, 3}, nil},
		"no more":      {8, 3, []int{1, 3, 5}, []int{6, 7}},
		"just so many": {6, 3, []int{1, 3, 5}, nil},
	} {
		queue := make([]*int, c.n)
		for i := range queue {
			queue[i] = &i
		}
		rest, taken := Take(queue, nil, c.most, odd)
		if !slices.Equal(values(taken), c.taken) || !slices.Equal(values(rest), c.rest) {
			t.Errorf("%s: took %v, left %v", name, values(taken), values(rest))
		}
		if slices.ContainsFunc(queue[len(rest):], func(p *int) bool { return p != nil }) {
			t.Errorf("%s: what was taken is still referred to", name)
		}
	}
}
