//go:build !unix

package main

import (
	"errors"
	"os"
)

var errNoStop = errors.New("this system can't stop a process; run it on Linux, macOS or BSD")

func pause(*os.Process) error { return errNoStop }
func wake(*os.Process) error  { return errNoStop }
