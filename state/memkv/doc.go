// Package memkv is the store in memory: a kv.KV that answers exactly as etcd 3.7
// does, for tests and for the simulation of a whole cluster in a testing/synctest
// bubble. It keeps its history until Compact, as etcd does.
//
// # What is exact
//
// Revisions, versions, leases on keys, compares against the state before the
// transaction, the order of operations inside it (a read sees the writes of the
// operations before it), the refusals (operations by depth, keys put twice or put
// and deleted, bytes of the encoded request), compaction, and events: their
// contents, order and revisions. kvtest holds the conformance suite, and a model
// test in etcdkv compares random histories of the two.
//
// # What is not
//
// Leases end on the instant, where etcd takes up to a second longer and extends
// all leases when its own leader changes. A watch that falls behind a compaction
// loses what it had not read, where etcd may already have sent some of it. There is
// no quota, no overload and no outage: package faulty adds those.
//
// # Time and goroutines
//
// Leases use package time, so inside a bubble they run in its virtual time. No
// goroutine is started except by a lease's timer when it fires; Close waits for
// those. Writers never wait for watchers: a watcher reads the history itself, at
// its own pace.
package memkv
