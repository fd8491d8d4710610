//go:build unix

package runner

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// child is a started command. It leads a process group, whose id is its pid.
type child struct {
	pid int

	mu     sync.Mutex
	reaped bool // the pid is no longer ours

	// Valid once exited is closed.
	exited chan struct{}
	status syscall.WaitStatus
	err    error // why there is no status
	ended  time.Time
}

// children are the live commands of the process, all Runners' together: pids
// belong to the process.
var children = registry{byPID: map[int]*child{}}

type registry struct {
	// gate is held for reading from before a fork until the child is in byPID, and
	// for writing by who collects foreign children: it never sees a command of
	// ours that is not registered.
	gate sync.RWMutex

	mu    sync.Mutex
	byPID map[int]*child
}

func (r *registry) add(c *child) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byPID[c.pid] = c
}

func (r *registry) remove(c *child) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byPID[c.pid] == c { // the pid may have a new owner
		delete(r.byPID, c.pid)
	}
}

// has tells whether the pid is a live command.
func (r *registry) has(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byPID[pid] != nil
}

// devNull is the standard input of all commands.
var devNull = sync.OnceValues(func() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_RDWR, 0) })

// start starts file in a process group of its own. It reads from stdin, or from
// /dev/null where that is nil. When piped, both outputs go to the pipe, which the
// caller closes; otherwise to /dev/null.
func start(file string, argv, env []string, dir string, stdin *os.File, piped bool) (c *child, pipe *os.File, err error) {
	hideInherited()
	null, err := devNull()
	if err != nil {
		return nil, nil, err
	}
	in := null.Fd()
	out := in
	if stdin != nil {
		in = stdin.Fd()
	}
	if piped {
		read, write, err := newPipe()
		if err != nil {
			return nil, nil, fmt.Errorf("output pipe: %w", err)
		}
		pipe, out = os.NewFile(uintptr(read), "output"), uintptr(write)
		// Only the command's copies may keep the pipe open. Of a pipe that nothing
		// was written to, the close cannot fail.
		defer func() { _ = syscall.Close(write) }()
	}
	if dir != "" {
		env = append(env, "PWD="+dir)
	}
	attr := &syscall.ProcAttr{Dir: dir, Env: env, Files: []uintptr{in, out, out}}
	c = &child{exited: make(chan struct{})}
	children.gate.RLock()
	handle, err := c.fork(file, argv, attr)
	if err == nil {
		children.add(c)
	}
	children.gate.RUnlock()
	if err != nil {
		if pipe != nil {
			err = errors.Join(err, pipe.Close())
		}
		return nil, nil, err
	}
	go c.wait(handle)
	return c, pipe, nil
}

// collect takes the exit status if there is one, and tells whether the child is
// gone.
func (c *child) collect() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return true
	}
	pid, err := wait4(c.pid, &c.status, syscall.WNOHANG)
	if pid == 0 && err == nil {
		return false
	}
	c.gone(err)
	return true
}

// gone ends the child. The caller holds the mutex.
func (c *child) gone(err error) {
	if err != nil {
		c.err = fmt.Errorf("the exit status of process %d is lost: %w", c.pid, err)
	}
	c.reaped, c.ended = true, time.Now()
	children.remove(c)
	close(c.exited)
}

// signalGroup signals the child's process group. An empty one is no error.
func (c *child) signalGroup(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Not collected, the leader keeps the group's id from being used again. Once
	// collected, its remaining members do.
	if c.reaped && children.has(c.pid) {
		return
	}
	// ESRCH: nobody is left. EPERM: all are other users'. Nothing more can be done
	// about either; who is still alive shows in groupExists.
	_ = syscall.Kill(-c.pid, sig)
	if sig == syscall.SIGKILL && !c.reaped {
		_ = syscall.Kill(c.pid, sig) // should the leader itself have left the group
	}
}

// groupExists tells whether the group has members, zombies included. After the
// leader was collected it collects those members that became our children.
func (c *child) groupExists() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		return true
	}
	if syscall.Kill(-c.pid, 0) == syscall.ESRCH {
		return false
	}
	children.gate.Lock()
	defer children.gate.Unlock()
	if children.has(c.pid) {
		return false // the id has a new owner, hence ours is gone
	}
	for {
		var status syscall.WaitStatus
		if pid, err := wait4(-c.pid, &status, syscall.WNOHANG); pid <= 0 || err != nil {
			break
		}
	}
	return syscall.Kill(-c.pid, 0) != syscall.ESRCH
}

func wait4(pid int, status *syscall.WaitStatus, options int) (int, error) {
	for {
		got, err := syscall.Wait4(pid, status, options, nil)
		if err != syscall.EINTR {
			return got, err
		}
	}
}
