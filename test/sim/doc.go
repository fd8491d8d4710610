// Package sim runs a whole cluster in virtual time: the store on memkv, its
// watch caches, control nodes that campaign and plan, and real executors that
// attend them over gRPC, all in one testing/synctest bubble. Faults come from
// the test or from a seed; what really ran is written down outside of leaderd.
//
// # The parts
//
//	world     the store, the network, the clock's beginning, and all nodes
//	control   a control node: watch caches, catalog, planner, elector
//	worker    an executor with a journal of its own onto the store
//	history   every start and end of work, as the runner saw it
//	audit     every event of the store, with its instant, read behind all nodes' backs
//	oracle    the slots that were due, by walking each stored version's schedules
//	check     the invariants, as functions of history, audit and oracle alone
//
// Two clocks do not exist in here: all nodes see the bubble's. What is not
// simulated either is a process that stands still while others go on.
//
// # Seeds
//
// A seed fixes the faults and the jobs, not how goroutines interleave, nor the
// jitter that the product draws itself: a seed that failed fails often, not
// always.
package sim
