package runner

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// staleness is how old a process table may be while we wait for an end.
const staleness = 50 * time.Millisecond

// tree is a command, its process group, and its descendants that left the group.
type tree struct {
	*child
	identity string
	// escaped are the descendants seen outside the group: pid and start.
	escaped map[int]uint64
}

func newTree(c *child, identity string) *tree { return &tree{child: c, identity: identity} }

// recent is the oldest time of a table that may be used while waiting: nothing
// from before the end of the main process, whose last children it may not have.
func (t *tree) recent() time.Time {
	oldest := time.Now().Add(-staleness)
	select {
	case <-t.exited:
		if t.ended.After(oldest) {
			return t.ended
		}
	default:
	}
	return oldest
}

// groupAlive tells whether a member of the group lives. Zombies that others do not
// collect do not count.
func (t *tree) groupAlive() bool {
	if !t.groupExists() {
		return false
	}
	procs := processes(t.recent())
	return len(procs.byPID) == 0 || procs.alive[t.pid]
}

// find looks for descendants outside the group in a table not older than oldest.
func (t *tree) find(oldest time.Time) {
	procs := processes(oldest)
	var todo []*process
	for pid, p := range procs.byPID {
		start, known := t.escaped[pid]
		switch {
		case p.pgid == t.pid, known && start == p.start, p.identity != "" && p.identity == t.identity:
			todo = append(todo, p)
		}
	}
	self := os.Getpid()
	seen := map[int]bool{}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[p.pid] || p.pid == self || p.pid == 1 || p.pid != t.pid && children.has(p.pid) {
			continue
		}
		seen[p.pid] = true
		todo = append(todo, procs.kids[p.pid]...)
		if p.pgid != t.pid && !p.dead {
			if t.escaped == nil {
				t.escaped = map[int]uint64{}
			}
			t.escaped[p.pid] = p.start
		}
	}
}

// signalEscaped signals the descendants outside the group.
func (t *tree) signalEscaped(sig syscall.Signal) {
	for pid, start := range t.escaped {
		signalProcess(pid, start, sig)
	}
}

// escapedAlive forgets the descendants that are gone and tells whether any is left.
func (t *tree) escapedAlive() bool {
	for pid, start := range t.escaped {
		if p, ok := readProcess(pid); !ok || p.start != start || p.dead {
			delete(t.escaped, pid)
		}
	}
	return len(t.escaped) > 0
}

// signalProcess signals the process that started then, and no later owner of its
// pid. One that is gone, or not ours to signal, is left: see escapedAlive.
func signalProcess(pid int, start uint64, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer func() { _ = unix.Close(fd) }() // of a pidfd: cannot fail
	}
	if p, ok := readProcess(pid); !ok || p.start != start {
		return
	}
	if err == nil {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
		return
	}
	_ = syscall.Kill(pid, sig) // a kernel without pidfds
}
