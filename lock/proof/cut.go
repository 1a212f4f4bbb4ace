package main

import (
	"math/rand/v2"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// cutShare is how many pieces of replies there are for each that is cut.
const cutShare = 12

// A cutToxic ends a connection instead of passing on a reply, now and then. The server has run the call.
type cutToxic struct{}

// Pipe is toxiproxy's.
func (cutToxic) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case piece := <-stub.Input:
			if piece == nil || rand.IntN(cutShare) == 0 {
				stub.Close()
				return
			}
			stub.Output <- piece
		}
	}
}
