// Package cluster runs a real Kubernetes, from programs that `make test-kubernetes`
// builds: so far its API server alone (API), which listens on loopback and needs no
// rights.
package cluster
