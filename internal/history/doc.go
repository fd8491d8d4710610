// Package history judges what a cluster did, from three records that were made
// independently of each other: the versions of the jobs as etcd stored them, the
// starts as the work itself wrote them down, and the runs as the API lists them.
//
// What was due is computed here by brute force, second by second, with no code
// of the product: a checker that asks the scheduler when something was due
// would agree with its mistakes.
//
// # What is checked
//
//	Unaccounted  every due slot has a verdict or a live record
//	Doubled      and no more than one
//	Undue        no run exists for an instant at which nothing was due
//	Twice        no attempt started twice; an at-most-once slot started once
//	Again        a further attempt follows only one that was lost or failed
//	Early        nothing started before its slot
//	Unknown      each start is an attempt that its run knows, by token
//	Silent       an attempt that succeeded is one that the work wrote down
//	Unfenced     nothing started by a claim after its job's pause, edit or delete
//	Overlap      runs of an exclusive job do not overlap
//
// Tokens and versions are compared by etcd's revisions, so these rules need no
// clock. Early and Overlap compare clocks and hold where all processes share a
// machine.
package history
