// Package etcd connects a node with etcd: Dial to one that runs elsewhere, or a
// Server, a member inside the process.
//
// The member runs with etcd's own safe settings: every write is synced to disk
// before it is acknowledged, with the limits on requests that any etcd has.
// Where leaderd departs from etcd's defaults, and why, is said in memberConfig.
// A member that cannot write its log any more ends the process, as etcd itself
// does: going on would break promises already made.
//
// Reads, writes and leases of the node go to its member by function call (see
// package state/etcdkv/inproc), watches and the election over a connection on
// its client listener.
package etcd
