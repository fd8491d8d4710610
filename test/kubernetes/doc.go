// Package kubernetes tests the Helm chart. Its tests are in a module of their own,
// since they need what leaderd itself does not: Helm, Kubernetes' own rules of Pod
// Security, and later Kubernetes.
//
//   - static: what can be told from the chart and its renders alone.
//   - apiserver: what a real API server makes of it.
//   - pods: real pods on one node, and what breaks in life; on three nodes a partition,
//     with `make test-kubernetes-nodes`.
//
// `make test-kubernetes` builds the programs that they run, once for each version,
// and tells the tests where they are.
package kubernetes
