package main

import (
	"math/rand/v2"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// cutShare: one of this many pieces of replies is cut.
const cutShare = 12

// A cutToxic sometimes closes a connection instead of passing a reply on. The server has run the call.
type cutToxic struct{}

// Pipe implements toxiproxy's interface.
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
