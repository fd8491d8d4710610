// Package e2e tests leaderd as its users run it: real processes of the real
// binary, an etcd of several members, and faults from outside: SIGKILL, SIGSTOP,
// SIGTERM, a network that goes silent, keys and leases that are deleted, a disk
// quota that is full. The members of etcd are processes, too.
//
// TestChaos is a nemesis: it breaks one thing after the other, or, with
// -chaos.minutes, at random from -chaos.seed, and has the whole history checked in
// the end (make chaos).
//
// Every job's work writes down its own starts, as requests to a server of the
// test or as lines of a file, outside leaderd. At the end of a scenario package
// history compares them with the versions of the jobs as etcd stored them and
// with the runs as the API lists them, and asserts all that must hold whatever
// happened.
//
// # Time
//
// Nodes run with the shortest leases that the configuration allows, so that a
// failover takes seconds. -e2e.long runs the faults for as long as people meet
// them. How late starts were is always logged; it is asserted only with a margin
// that a loaded machine keeps.
//
// Scenarios that measure or load the machine run alone and first; those that
// mostly wait run beside each other.
//
// # What a failure leaves behind
//
// The logs of all nodes are kept below the directory that the failed test names,
// and their ends are part of its output. Set E2E_KEEP to keep them
// always, and E2E_BINARY to test a program that was built before.
package e2e
