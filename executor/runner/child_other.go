//go:build unix && !linux

package runner

import "syscall"

// fork starts the process. There is no handle on it but its pid.
func (c *child) fork(file string, argv []string, attr *syscall.ProcAttr) (handle int, err error) {
	attr.Sys = &syscall.SysProcAttr{Setpgid: true}
	c.pid, _, err = syscall.StartProcess(file, argv, attr)
	return -1, err
}

// wait collects the child when it ends. It costs a thread.
func (c *child) wait(int) {
	var status syscall.WaitStatus
	_, err := wait4(c.pid, &status, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
	c.gone(err)
}

// newPipe makes a pipe of which only the read end does not block.
func newPipe() (read, write int, err error) {
	var fds [2]int
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := syscall.Pipe(fds[:]); err != nil {
		return 0, 0, err
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		_, _ = syscall.Close(fds[0]), syscall.Close(fds[1])
		return 0, 0, err
	}
	return fds[0], fds[1], nil
}

// hideInherited does nothing: there is no way to mark all descriptors at once.
func hideInherited() {}
