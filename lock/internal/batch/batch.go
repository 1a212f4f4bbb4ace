// Package batch sends the calls of many goroutines to Redis in few round trips.
package batch

// Max bounds the calls of one pipeline, since the first of them waits for the last.
const Max = 128

// Take moves calls from the front of queue to batch until that has most. It drops those that send refuses.
func Take[T any](queue, batch []T, most int, send func(T) bool) (rest, taken []T) {
	n := 0
	for n < len(queue) && len(batch) < most {
		if send(queue[n]) {
			batch = append(batch, queue[n])
		}
		n++
	}
	left := copy(queue, queue[n:])
	clear(queue[left:])
	return queue[:left], batch
}
