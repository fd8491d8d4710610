package runner

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ReapOrphans makes this process the parent of the orphans among its descendants
// and collects them within some seconds of their end, until ctx ends. It is for
// the whole process: run it once. It collects no command of a Runner and no child
// in the process group of this process (os/exec starts its children there; one
// started in another group loses its exit status to ReapOrphans).
func ReapOrphans(ctx context.Context) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	// Commands end all the time, and each look reads all of /proc: at most one a
	// second, and on a large or busy machine less than a fiftieth of the time, as far
	// as zombies still go within some seconds.
	const least, most, share = time.Second, 3 * time.Second, 50
	wake := time.NewTimer(0) // what was there before us
	defer wake.Stop()
	waiting := true
	for {
		select {
		case <-ctx.Done():
			if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
				return fmt.Errorf("cease to be subreaper: %w", err)
			}
			collectOrphans()
			return nil
		case <-ended:
			if !waiting {
				waiting = true
				wake.Reset(least)
			}
		case <-wake.C:
			waiting = false
			began := time.Now()
			more := collectOrphans()
			if took := time.Since(began); more || took > least/share {
				waiting = true
				wake.Reset(min(max(least, share*took), most))
			}
		}
	}
}

// collectOrphans collects the zombies among our children that are no commands, and
// tells whether there were any: their parents may have left more.
func collectOrphans() bool {
	self, group := os.Getpid(), syscall.Getpgrp()
	procs := processes(time.Now())
	children.gate.Lock()
	defer children.gate.Unlock()
	found := false
	for _, p := range procs.kids[self] {
		if !p.dead || p.pgid == group || children.has(p.pid) {
			continue
		}
		// Since the table was read it may have been collected by its run, and its
		// pid be that of an os/exec child of ours.
		if now, err := syscall.Getpgid(p.pid); err != nil || now == group {
			continue
		}
		var status syscall.WaitStatus
		if pid, err := wait4(p.pid, &status, syscall.WNOHANG); pid > 0 && err == nil {
			found = true
		}
	}
	return found
}
