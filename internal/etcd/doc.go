// Package etcd connects a node with etcd: Dial to one that runs elsewhere, or a
// Server, a member inside the process.
//
// The member runs with etcd's own safe settings: every write is synced to disk
// before it is acknowledged, with the limits on requests that any etcd has.
// Where leaderd departs from etcd's defaults, and why, is said in memberConfig.
// A member that cannot write its log any more ends the process, as etcd itself
// does: going on would break promises already made.
//
// A member without data asks all others before it starts. It founds a cluster only
// where none of them has data, or all expect it to found one with them; where they
// know that it once served, it waits until etcd's leader has replaced it by a member
// with a new identity, as which it joins (join.go, replace.go). What it promised
// under the old one counts no more, so nothing acknowledged is lost as long as a
// majority has its data; where none has, the members wait for a backup to be
// restored rather than begin anew.
//
// Reads, writes and leases of the node go to its member by function call (see
// package state/etcdkv/inproc), watches and the election over a connection on
// its client listener.
package etcd
