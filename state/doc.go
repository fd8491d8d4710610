// Package state holds leaderd's domain: jobs, slots, runs, attempts, nodes, the
// limits on each, and the table of legal transitions of a run. It imports only
// the standard library, starts nothing and reads no clock.
//
// Package state/store keeps these types in etcd; state/codec is their one
// encoding. The words are those of docs/concepts.md.
//
// # A run's states
//
//	                  trigger, submission
//	                        |
//	                     pending ----------------------------.
//	                        |                                |
//	slot due --- claim --> running --- finish ---> succeeded | failed |
//	    |                   ^   |                  timed_out | cancelled |
//	    |             claim |   | lost, retry      interrupted
//	    |                   |   v                            |
//	    |                  waiting --- give up --> lost, cancelled
//	    |                                                    |
//	    '---- not started -------------------------> skipped | missed
//
// pending and waiting own no executor. The states on the right are verdicts:
// they never change again. Transitions (see Transition) is the table that the
// store's transactions enforce.
package state
