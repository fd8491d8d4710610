// Pause does nothing until it is told to end. The kubelet runs one in each pod, to
// hold the pod's network.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM)
	<-told
}
