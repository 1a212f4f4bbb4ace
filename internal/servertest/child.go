package servertest

import (
	"os/exec"
	"runtime"
)

// Start starts a child. On Linux the kernel kills it when this process ends, even if that is by SIGKILL. The channel
// is closed when the child has ended.
func Start(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	endWithParent(cmd)
	// The kernel watches the thread that started the child, not the process. So this goroutine keeps its thread.
	started := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its log says how it ended
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return done, nil
}
