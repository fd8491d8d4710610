// Package placement chooses the nodes that a shard of work should run on. It is
// pure: no clock, no goroutines, no randomness. The same nodes and the same calls
// give the same answers in every process, so a new leader places as the old one
// did.
//
// # Ranking
//
// A Table ranks nodes for a key by weighted rendezvous hashing: each node draws
// an exponentially distributed number from the hash of key and node, with its
// capacity as the rate, and the lowest wins. So
//
//   - a node is first for a share of the keys that is proportional to its capacity;
//   - when a node leaves, only the keys it was first for change their first node;
//   - when a node joins, it becomes first for its share and nothing else changes;
//   - the second in the ranking is where the key goes if the first leaves, which
//     makes it the right one for a hedge.
//
// # Bounded load
//
// Hashing alone overloads some nodes. A Balancer adds a bound: a node takes
// another key only while its load is below (1+epsilon) times its fair share of
// the load on all nodes that match the key's selector; the best-ranked node
// below its bound gets the key. There always is one, since not all nodes can be
// above their share. Keys stay where they are until Rebuild.
//
// # What is authoritative
//
// Nothing here. A placement is a proposal; a claim makes a start real. A
// Balancer forgets all with its owner's term, and Adopt tells the next one what
// executors hold.
//
// # Not promised
//
// The order is a function of floating-point logarithms. Machines of different
// architecture may differ in the last bit and so, about once in 2^50 choices,
// in the order of two nodes.
package placement
