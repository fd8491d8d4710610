// Package fair hands out what waits by class, and inside a class in shares by weight.
//
// # Order
//
// Classes are strict: as long as something of a higher class waits, and may be taken,
// nothing of a lower one is. Inside a class each flow (a job) gets, while it has
// something waiting, a part of all that is taken which is its weight by the weights of
// all flows that wait. It is start-time fair queueing: each item has a virtual time at
// which its flow is due for it, and the least is taken. A flow is first in, first out.
//
// # Lanes
//
// A lane is what its items need beside their turn, such as a GPU. A lane for which there
// is no room now is passed over, and its flows keep their claim: when there is room they
// come before others of their class.
//
// # What it remembers
//
// A flow that has nothing waiting is remembered while others wait, so that one which
// always comes back with a single item gets no more than its share. When nothing waits
// any more all is forgotten: who met nobody owes nothing.
//
// The order depends on nothing but the calls: no clock, no randomness, no addresses. It
// is not safe for concurrent use.
package fair
