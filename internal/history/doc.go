// Package history judges what a cluster did. Check is a pure function of Facts:
// the versions of the jobs as they were stored, the runs as they were read at the
// end, and whatever logs there are beside, above all what the work itself wrote
// down. Simulation, end-to-end tests and `leaderd verify` use this one checker,
// with as many of the logs as they have; what the facts do not tell is not passed
// over but reported as unchecked.
//
// What was due is computed here by brute force, second by second, with no code of
// the product: a checker that asks the scheduler when something was due would
// agree with its mistakes. The package imports only the standard library, and a
// test holds it to that.
//
// # What is checked
//
// Each Rule belongs to one of the ten invariants of the design, and its comment
// says what breaks it. A case of TestCheckBites breaks each rule alone.
//
// # What is compared
//
// Changes of jobs, claims and verdicts are compared by the store's revisions, so
// these rules need no clock. A slot is compared with the clock of the executor that
// started it. Rules that compare times of several machines hold only where
// Facts.OneClock says that they have one clock.
//
// # Non-guarantees
//
// The checker cannot tell a fact that is missing from a log from one that never
// was: Facts.Sources says which logs are whole. Where a change's instant is not
// stored (Version.Slack), or those who act may not have heard of it (Facts.Stale),
// slots near it may have a record or not.
package history
