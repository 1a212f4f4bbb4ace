package scenarios

import (
	"fmt"
	"os"
)

// These environment variables give a process its role.
const (
	envRole     = "SIGNALBOX_SCENARIO_ROLE"
	envSettings = "SIGNALBOX_SCENARIO_SETTINGS"
)

// ChildMain returns false at once unless this process was started by [Run] in another
// process. Then it plays its role until its standard input ends, and returns true. The
// caller must do nothing after that.
func ChildMain() bool {
	var part func(settings string) error
	switch os.Getenv(envRole) {
	case "":
		return false
	case "client":
		part = playClient
	case "resource":
		part = playResource
	default:
		part = func(string) error { return fmt.Errorf("there is no role %q", os.Getenv(envRole)) }
	}
	if err := part(os.Getenv(envSettings)); err != nil {
		fmt.Fprintln(os.Stderr, "scenarios:", err)
		os.Exit(1)
	}
	return true
}
