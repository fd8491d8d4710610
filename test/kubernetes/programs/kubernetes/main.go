// Kubernetes is the programs of a Kubernetes cluster in one file, which saves most
// of the time and space that linking each of them would take. The name it is
// called by, or else the first argument, chooses the program.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	command, ok := program(name)
	if !ok && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
		command, ok = program(name)
	}
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: kubernetes kube-apiserver|kube-controller-manager|kube-scheduler|kube-proxy|kubelet|kubectl ...")
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}

func program(name string) (*cobra.Command, bool) {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand(), true
	case "kube-controller-manager":
		return controllers.NewControllerManagerCommand(), true
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand(), true
	case "kube-proxy":
		return proxy.NewProxyCommand(), true
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background()), true
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand(), true
	default:
		return nil, false
	}
}
