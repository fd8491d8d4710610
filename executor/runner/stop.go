//go:build unix

package runner

import (
	"syscall"
	"time"
)

// killWait bounds the wait for what was killed, beside the main process: the rest
// may sleep uninterruptibly.
const killWait = 2 * time.Second

// clean sees to what a command left behind that ended by itself.
func (s *supervisor) clean() {
	if s.gone(s.left, time.After(s.cfg.Linger), nil) || !s.tree.groupAlive() {
		return // what still holds the pipe has left the group: see pump.finish
	}
	s.tree.signalGroup(syscall.SIGTERM)
	if s.gone(s.tree.groupAlive, time.After(s.grace()), s.task.Kill) {
		return
	}
	s.tree.signalGroup(syscall.SIGKILL)
	s.gone(s.tree.groupAlive, time.After(killWait), nil)
}

// left tells whether the output is open or somebody is in the group.
func (s *supervisor) left() bool {
	if s.pump != nil {
		select {
		case <-s.pump.done:
		default:
			return true
		}
	}
	return s.tree.groupAlive()
}

// stop asks the command and all its descendants to end and kills them after the
// grace. It returns when the main process is gone.
func (s *supervisor) stop(grace time.Duration) {
	if grace > 0 {
		s.tree.find(time.Now())
		s.tree.signalGroup(syscall.SIGTERM)
		s.tree.signalEscaped(syscall.SIGTERM)
		if s.gone(s.alive, time.After(grace), s.task.Kill) {
			return
		}
	}
	s.kill()
}

// kill kills all. Processes that were being forked meanwhile are found in the next
// round.
func (s *supervisor) kill() {
	deadline := time.Now().Add(killWait)
	for {
		s.tree.find(time.Now())
		s.tree.signalGroup(syscall.SIGKILL)
		s.tree.signalEscaped(syscall.SIGKILL)
		<-s.child.exited
		if s.gone(s.alive, time.After(100*time.Millisecond), nil) || time.Now().After(deadline) {
			return
		}
	}
}

// alive tells whether the main process, its group or a descendant lives.
func (s *supervisor) alive() bool {
	select {
	case <-s.child.exited:
	default:
		return true
	}
	if s.tree.groupAlive() {
		return true
	}
	s.tree.find(s.tree.recent())
	return s.tree.escapedAlive()
}

// gone waits until alive answers false, and answers false itself when the time is
// over or now is closed before. The ends of the main process and of the output wake
// it; the rest sends us nothing to wait for and is polled.
func (s *supervisor) gone(alive func() bool, over <-chan time.Time, now <-chan struct{}) bool {
	const least, most = time.Millisecond, 50 * time.Millisecond
	exited := s.child.exited
	var printed <-chan struct{}
	if s.pump != nil {
		printed = s.pump.done
	}
	pause := least
	if !alive() {
		return true
	}
	poll := time.NewTimer(pause)
	defer poll.Stop()
	for {
		select {
		case <-over:
			return false
		case <-now:
			return false
		case <-exited:
			exited, pause = nil, least
		case <-printed:
			printed, pause = nil, least
		case <-poll.C:
			pause = min(2*pause, most)
		}
		poll.Reset(pause)
		if !alive() {
			return true
		}
	}
}
