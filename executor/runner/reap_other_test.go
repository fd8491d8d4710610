//go:build !linux

package runner_test

// There is no PID 1 test but on Linux.
const asInitVar = ""

func asInit() {}
