package lock

import "testing"

func TestFromContext(t *testing.T) {
	t.Parallel()
	if lease, ok := FromContext(t.Context()); ok || lease != nil {
		t.Errorf("a lease from nowhere: %v", lease)
	}
	outer, inner := &redisLock{value: "outer"}, &redisLock{value: "inner"}
	ctx := NewContext(NewContext(t.Context(), outer), inner)
	if lease, ok := FromContext(ctx); !ok || lease != inner {
		t.Errorf("%v, %v; want the innermost", lease, ok)
	}
}
