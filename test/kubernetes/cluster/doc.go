// Package cluster runs a real Kubernetes, from programs that `make test-kubernetes`
// builds: its API server alone (API), or a whole cluster whose nodes run real pods
// (Cluster).
//
// The API server alone listens on loopback and needs no rights. A whole cluster
// lives in private namespaces for network, mounts and processes, which Main makes:
// no link leaves them, the one process that made them takes all others along when it
// ends, and nothing but empty mount points stays behind. For that it needs to be
// root; Missing tells what a machine lacks.
//
// All addresses are in 198.18.0.0/15, which is set aside for tests.
package cluster
