package deployments

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
)

// startLoad starts busy loops, which are processes of this host. They end with stop, with this process, or after an hour
// of processor time.
func startLoad(loops int) (stop func(), err error) {
	started, end, ended := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		// The kernel kills a child with Pdeathsig when the thread ends that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var running []*exec.Cmd
		defer func() {
			for _, cmd := range running {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		}()
		for range loops {
			cmd := exec.Command("sh", "-c", "ulimit -t 3600; while :; do :; done")
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := cmd.Start(); err != nil {
				started <- fmt.Errorf("start a busy loop: %w", err)
				return
			}
			running = append(running, cmd)
		}
		started <- nil
		<-end
	}()
	err = <-started
	return func() { close(end); <-ended }, err
}
