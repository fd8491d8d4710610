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
//	random numbers: math/rand/v2's global functions, the order     one generator for the bubble,
//	of maps, select cases and simultaneous timers                  begun by Begin
//	hash functions and seeds of maps, which order large maps       fixed
//	addresses, which order large maps with pointers as keys        contexts end their children in order;
//	                                                               GOEXPERIMENT=norandomizedheapbase64
//	preemption of a goroutine after 10 ms of real time             there is none
//	the scheduler's counter, which the runtime's own goroutines    counts the bubble's only
//	advance
//	a mutex that starves after 1 ms of real time                   virtual time
//	garbage collection at a rate of real time                      GOGC=off; the run collects at
//	                                                               instants of virtual time, and all at once
//	memory that is given back in the background                    none is
//	whether a stopped timer had left the heap when it is set       the order of timers is drawn when they
//	again, and so drew another place among simultaneous ones       are made, and never again
//	numbers of goroutines, and addresses, in the stacks of panics  left out
//
// Addresses are not the same in every run: threads come and go by real time, and
// take memory. So what is simulated must not go through a map of more than eight
// pointers in its own order. Where that still happens, in a library perhaps, two
// runs of one seed part at some point; the simulation's digest tells.
//
// A process may run many bubbles, one after the other: each begins with the same
// numbers and the same counter, and Begin gives it its own. What a process does once
// for all, such as making the tables of message types, it has to do before the first of
// them; and nothing that is simulated may count on from one bubble to the next, where
// the count decides an order.
//
// Everything else is left as it is, but for two things that save time: goroutines
// begin with a larger stack, and stacks do not shrink. Without the tag "exact" and
// the overlay the simulation does the same, but a seed then fixes the faults only,
// not how goroutines interleave.
package exact
