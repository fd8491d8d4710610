package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Tools is the folder of the programs that make builds.
type Tools string

// FindTools answers where make says that its programs are.
func FindTools() (Tools, error) {
	dir := os.Getenv("KUBERNETES_TOOLS")
	if dir == "" {
		return "", errors.New("KUBERNETES_TOOLS must be the folder of Helm and Kubernetes: use make test-kubernetes")
	}
	return Tools(dir), nil
}

// kubernetes is the path of the file that holds Kubernetes' own programs.
func (t Tools) kubernetes() string {
	if path := os.Getenv("KUBERNETES"); path != "" {
		return path
	}
	return t.Program("kubernetes")
}

// Program is the path of a program.
func (t Tools) Program(name string) string { return filepath.Join(string(t), name) }

// command is the program, with the arguments that choose it where several share a
// file.
func (t Tools) command(name string, args ...string) (program string, all []string) {
	if name == "kubelet" || name == "kubectl" || strings.HasPrefix(name, "kube-") && name != "kube-router" {
		return t.kubernetes(), append([]string{name}, args...)
	}
	return t.Program(name), args
}
