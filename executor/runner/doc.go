// Package runner does the work of one attempt: a command, an HTTP request or
// nothing. Runner.Run blocks until the work is over and answers how it ended. It
// knows nothing of claims and records; its caller holds the claim and decides
// when the work must stop.
//
// # How an attempt ends
//
//	start refused ---------------------------------> failed
//	work ends: exit code 0 / expected status ------> succeeded
//	           anything else ----------------------> failed
//	Task.Timeout passes ----------- stop ----------> timed_out
//	ctx ends, by context.Cause:
//	    ErrCancelled -------------- stop ----------> cancelled
//	    ErrDrained, ErrFenced, others -- stop -----> interrupted
//	panic, nil panic, runtime.Goexit -- kill ------> failed
//
// Once a stop was asked for, it decides the outcome, whatever the exit code: many
// programs exit 0 at SIGTERM with their work undone. A work that was over before
// keeps its own result.
//
// # Commands
//
// A command runs in a process group of its own, with standard input from
// /dev/null and both outputs into one pipe. A stop is SIGTERM to the group; after
// the grace, or when Task.Kill is closed, SIGKILL. Descendants that left the group
// (setsid) are found by walking /proc and get the same signals.
//
// The run ends with its main process: its exit code and Outcome.Ended are those of
// that process. What is left in the group then gets Config.Linger to end by itself
// (a `tee` that still flushes), then SIGTERM, the grace and SIGKILL, so that nothing
// piles up, and Run returns after that. A process that left the group with
// setsid survives a run that ends by itself (that is how a command starts a daemon
// on purpose) but not one that is stopped. If it still holds the output, the pipe
// is closed after Config.Linger; it gets SIGPIPE should it write again.
//
// # Children and zombies
//
// Each command is waited for by its own pid alone. ReapOrphans makes the process
// the reaper of the orphans of its descendants (and of everybody's as PID 1) and
// collects them; it never collects a command, nor a child that shares the process's
// own process group, such as os/exec starts by default.
//
// # Non-guarantees
//
//   - A descendant that left the group, lost all its ancestors and replaced its
//     environment (LEADERD_*) is not found at a stop; nor is any that left the
//     group outside Linux, or where /proc cannot be read. Processes of other users
//     are beyond an unprivileged leaderd.
//   - A main process in uninterruptible sleep survives SIGKILL, and Run blocks until
//     it is gone: it may still do its work.
//   - Commands survive a leaderd that is killed itself. Their token is their fence.
//   - Signals to a group whose leader was collected rely on the kernel not to use
//     one pid twice within milliseconds.
package runner
