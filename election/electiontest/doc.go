// Package electiontest runs electors against a real etcd, each behind a fault
// proxy of its own, and holds them to the promise of package election.
//
// Nodes is the harness, for the suite beside it and for tests of what leaders do.
// Ledger is the judge: leaders enter each act with its instant, and no two terms'
// acts may interleave on the one monotonic clock that all nodes of a process
// share.
package electiontest
