// Package sim runs a whole cluster in virtual time: the store on memkv, its
// watch caches, control nodes that campaign and plan, and real executors that
// attend them over gRPC, all in one testing/synctest bubble. Faults come from
// the test or from a seed; what really ran is written down outside of leaderd.
//
// # The parts
//
//	world     the store, the network, the clock's beginning, and all nodes
//	host      what a node runs on: its wall clock, and whether its process runs
//	link      a node's way to the store: refusals, lost requests and answers, delays,
//	          transactions that are carried out after their callers gave up
//	network   connections between executors and control nodes; each direction can
//	          be blocked, slowed, or broken
//	control   a control node: watch caches, catalog, planner
//	worker    an executor with a journal of its own onto the store
//	history   every start and end of work, as the runner saw it
//	audit     every event of the store, with its instant, read behind all nodes' backs
//	facts     what was seen, as package internal/history judges it, whose oracle knows
//	          what was due
//	check     what the audit alone shows: places and pending keys as they change, and
//	          that nothing is left over or held up when all is quiet
//	chaos     a random run: acts, and some of the configuration, drawn from a seed
//
// # What is not simulated
//
// The campaign is the simulation's own: package election needs an etcd client.
// Executors write through a store in their own process, never through a control
// node's journal. A node that stands still is held at its seams, not inside: what
// it does within itself goes on. A message is lost only with its connection, and
// none comes twice, as with TCP.
//
// # Seeds
//
// A seed fixes the faults and the jobs. Built and run as `make sim` does, it fixes
// all else too: see package exact. In an ordinary test a seed that failed fails
// often, not always.
package sim
