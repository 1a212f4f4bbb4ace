package fromasynq_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/fromasynq"
)

// A plan says what would be moved. Move does it, and may be called again after any error.
func ExampleMover() {
	server, err := embedded.Start()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
	defer rdb.Close()

	mapping, err := fromasynq.ReadMap(strings.NewReader(`{"kinds": {"email:welcome": {"kind": "welcome", "queue": "mail"}}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := fromasynq.New(rdb, rdb, fromasynq.Config{Map: mapping}) // asynq's Redis, and that of the queues here
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := m.Plan(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range plan.Stays {
		fmt.Println(c.Tasks, c.Type, c.Reason)
	}
	report, err := m.Move(context.Background())
	fmt.Println("moved:", report.Moved, err)
	// Output: moved: 0 <nil>
}
