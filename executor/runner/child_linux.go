package runner

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// fork starts the process and answers its pidfd, -1 where the kernel has none.
func (c *child) fork(file string, argv []string, attr *syscall.ProcAttr) (pidfd int, err error) {
	pidfd = -1
	attr.Sys = &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd}
	c.pid, _, err = syscall.StartProcess(file, argv, attr)
	return pidfd, err
}

// wait collects the child when it ends. A pidfd in the poller costs no thread, so
// that thousands of commands can run at once.
func (c *child) wait(pidfd int) {
	if pidfd >= 0 && c.poll(pidfd) {
		return
	}
	// The leader stays a zombie, and its pid ours, until the mutex is held.
	for {
		err := unix.Waitid(unix.P_PID, c.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	c.collect()
}

// poll waits through the poller and tells whether that was possible.
func (c *child) poll(pidfd int) bool {
	nonblocking := unix.SetNonblock(pidfd, true) == nil
	f := os.NewFile(uintptr(pidfd), "pidfd")
	defer func() { _ = f.Close() }() // of a pidfd: cannot fail
	if !nonblocking {
		return false
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	return raw.Read(func(uintptr) bool { return c.collect() }) == nil
}

// newPipe makes a pipe of which only the read end does not block.
func newPipe() (read, write int, err error) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return 0, 0, err
	}
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		_, _ = syscall.Close(fds[0]), syscall.Close(fds[1])
		return 0, 0, err
	}
	return fds[0], fds[1], nil
}

// hideInherited keeps descriptors that this process was started with from
// commands; those that Go opens are kept already. Kernels before 5.11 refuse, and
// commands then inherit what leaderd did.
var hideInherited = sync.OnceFunc(func() {
	_ = unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC)
})
