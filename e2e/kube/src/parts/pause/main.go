// Pause holds the namespaces of a pod: it sleeps until it is told to end, and
// collects the processes that a pod with one process namespace leaves to it.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// kubeadm starts it so before an upgrade, to see that pods still end.
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
