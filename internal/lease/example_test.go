package lease_test

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
)

// Validity bounds any kind of lease. Here another system has granted one of 1 s.
func ExampleValidity() {
	v := lease.NewValidity(context.Background())
	start := lease.Now() // before asking for the lease
	v.Extend(start, time.Second)
	fmt.Println(v.Context().Err(), v.Remaining() < 988*time.Millisecond)

	<-v.Context().Done()
	fmt.Println(context.Cause(v.Context()))
	fmt.Println("extended:", v.Extend(lease.Now(), time.Second))
	// Output:
	// <nil> true
	// lock: lease lost
	// extended: false
}
