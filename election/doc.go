// Package election makes one control node at a time the leader. It campaigns
// through etcd's concurrency.Session and concurrency.Election, holds the
// leadership as a Term, gives it up before it can have passed to another, and
// lets every control node observe who leads.
//
// # One tenure
//
// Run goes through tenures for ever. Each has a lease, a Session and an Election
// of its own; none is ever used twice.
//
//	grant lease -> campaign -> read own key back -> lead(ctx, term) -> resign -> close session
//	     |             |              |                    |
//	     '-------------'--------------'--------------------'--> back off with jitter, next tenure
//
// Campaign knows nothing of the session's end: it may wait on with no key of its
// own and then report a victory that is not one. So it runs under a context that
// ends with the session, and its victory counts only after a linearizable read
// shows that the first key of the election is this tenure's, by its
// CreateRevision and its lease.
//
// # What is authoritative
//
// The election's keys in etcd are. The leader is the one whose key has the lowest
// CreateRevision; that number is the term's, it rises from leader to leader, and
// a write that must be the leader's compares it. Within the process a term is a
// belief with an end: it is trusted until its deadline, which counts from the
// start of the last keep-alive request that was answered, plus the TTL, minus a
// margin. etcd counts the lease's life from a later instant, so the trust ends
// first, without a look at any other machine's clock. The margin pays for clocks
// that run at different rates and for the time in which work takes notice.
//
// One loop keeps the lease alive, ours: it stands in for the client's own behind
// the session, whose deadline counts from the answer. So Session.Done, the
// deadline and the term's context end together.
//
// # How a term ends
//
//   - The deadline passes (ReasonExpired), a keep-alive learns that the lease is
//     gone (ReasonLeaseGone), or the leader's key was deleted or replaced from
//     outside (ReasonKeyGone; seen by a watch, and by a read each TTL should the
//     watch hang). The term's context is cancelled at once with a *LostError,
//     whatever the work does meanwhile.
//   - The work returns. An error or a panic ends the term, not the elector, unless
//     the error wraps ErrFatal.
//   - Run's context ends. The lease is kept alive until the work has returned.
//
// Then the work has Config.StopLimit to return; if it does not, Run ends with
// ErrStuck, and the process must exit. Only after the work has returned does the
// elector delete its key and revoke its lease, so that a successor need not wait
// for the TTL and finds nobody at work. A stuck tenure is not resigned: its lease
// is left to expire. A lease that is not found at its revocation is a success.
//
// # What is not guaranteed
//
//   - Two terms never overlap by their own deadlines, but a process can be
//     stopped between its look at Term.Trusted and the write that follows. Only
//     the compare of the term's number inside the write excludes that.
//   - Whoever deletes a leader's key or revokes its lease at etcd by hand makes the
//     next one leader at once; the first learns of it a moment later. Here too only
//     the compare excludes that both write.
//   - The monotonic clock stands still while a machine is suspended. On waking the
//     leader believes in its term until the next keep-alive is refused, a fifth of
//     the TTL later at most; its writes are refused meanwhile.
//   - A failover is not bound by the TTL: etcd starts every lease anew when its own
//     leader changes, so that a dead leader's key may live up to twice as long.
//   - Elections whose prefixes are related do not disturb each other, since
//     candidates lie below a last path segment that no prefix may contain.
package election
