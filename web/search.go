package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

// searchQueues is in how many queues a job is looked for.
const searchQueues = 200

// search leads to the queue or the job of a name. It looks for whole names only: each is one short call of Redis.
func (v *visit) search() (answer, error) {
	q := v.URL.Query().Get("q")
	if _, ok := v.state.of(q); ok {
		return answer{redirect: link("queue", "name", q)}, nil
	}
	m := message{Arm: "idle", Title: "Nothing has that name", Text: "No queue that you see has that name, and none of them has a live or kept job of that ID. Kinds and errors are looked for in the list of a queue's jobs."}
	if q == "" {
		m = message{Arm: "idle", Title: "What is looked for?", Text: "Type the name of a queue, or the ID of a job."}
		return answer{name: "message", title: m.Title, body: m}, nil
	}
	ctx, cancel := context.WithTimeout(v.Context(), lookBound)
	defer cancel()
	for i := range v.state.queues[:min(len(v.state.queues), searchQueues)] {
		queue := v.state.queues[i].Name
		switch _, err := v.ins.Job(ctx, queue, q); {
		case err == nil:
			return answer{redirect: link("job", "queue", queue, "id", q)}, nil
		case errors.Is(err, signalbox.ErrInvalid): // no job can have that ID
			return answer{status: http.StatusNotFound, name: "message", title: m.Title, body: m}, nil
		case !errors.Is(err, inspect.ErrNoJob) && !errors.Is(err, inspect.ErrNoQueue):
			return answer{}, err
		}
	}
	if len(v.state.queues) > searchQueues {
		m.Text += fmt.Sprintf(" Jobs were looked for in %d queues of %d.", searchQueues, len(v.state.queues))
	}
	return answer{status: http.StatusNotFound, name: "message", title: m.Title, body: m}, nil
}
