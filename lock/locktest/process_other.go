//go:build !unix

package locktest

import (
	"errors"
	"os"
)

var errNoSignal = errors.New("this system can't stop processes; leave locktest.Processes out")

func stopProcess(*os.Process) error { return errNoSignal }
func contProcess(*os.Process) error { return errNoSignal }
