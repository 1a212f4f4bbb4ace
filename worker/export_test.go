package worker

import "time"

// HoldRoom has bounds hold room for so long for a queue that doesn't come for it. A slow machine then looks less like a queue that has gone.
func HoldRoom(d time.Duration) { holdRoom = d }
