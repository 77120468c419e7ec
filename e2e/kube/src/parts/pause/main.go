// Pause holds the namespaces of a pod. It sleeps until SIGINT or SIGTERM, and reaps
// orphaned processes of pods whose containers share a process namespace.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// kubeadm starts a pod with `pause -v` before an upgrade, to check that pods can run and end.
	if len(os.Args) == 2 && os.Args[1] == "-v" {
		fmt.Println("pause of nixbench's lab")
		return
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	child := make(chan os.Signal, 1)
	signal.Notify(child, syscall.SIGCHLD)
	for {
		select {
		case <-end:
			return
		case <-child:
			// One signal may stand for several children.
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}
