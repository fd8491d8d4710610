// Package exact makes a run of the simulation repeatable to the last bit: it
// writes an overlay for the go command in which a few functions of Go's runtime
// and standard library take what they draw, and when they switch, from the
// simulation.
//
// # What a run depends on
//
// In a process with one P (GOMAXPROCS=1) the goroutines of a testing/synctest
// bubble run one at a time, in virtual time. What then differs between two runs
// of one seed, and what is done about it:
//
//	random numbers: math/rand/v2's global functions, hash seeds,   one generator for the bubble,
//	the order of maps, select cases and simultaneous timers        begun from SeedVariable
//	hash functions, which order large maps                         the runtime's seed is fixed
//	addresses, which order large maps with pointers as keys        contexts end their children in order;
//	                                                               GOEXPERIMENT=norandomizedheapbase64
//	preemption of a goroutine after 10 ms of real time             there is none
//	the scheduler's counter, which the runtime's own goroutines    counts the bubble's only
//	advance
//	a mutex that starves after 1 ms of real time                   virtual time
//	garbage collection at a rate of real time                      GOGC=off; the run collects at
//	                                                               instants of virtual time, and all at once
//
// Addresses are not the same in every run: threads come and go by real time, and
// take memory. So what is simulated must not go through a map of more than eight
// pointers in its own order. Where that still happens, in a library perhaps, two
// runs of one seed part at some point; the simulation's digest tells.
//
// Everything else is left as it is. Without the overlay the simulation does the
// same, but a seed then fixes the faults only, not how goroutines interleave.
package exact
