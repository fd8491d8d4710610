// Package pods runs the chart on a real Kubernetes of one node, with real pods, and
// breaks what breaks in life: the leader's pod is killed, the release is upgraded
// under load, rolled back and drained, etcd goes away, volumes are lost. The work
// itself is counted where it arrives, in the process of the tests, beside what
// leaderd says of it.
package pods
