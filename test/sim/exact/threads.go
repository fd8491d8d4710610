package exact

import (
	"runtime"
	"sync"
)

// threads is more than the runtime ever uses at a time in a simulation.
const threads = 24

// MakeThreads has the runtime make threads ahead of the simulation. It makes one
// when it is short of them, which depends on real time; each takes memory from
// the heap, and so would move what is allocated after it. It blocks until they
// are there.
func MakeThreads() {
	var there, over sync.WaitGroup
	there.Add(threads)
	release := make(chan struct{})
	for range threads {
		over.Go(func() {
			runtime.LockOSThread() // none else runs on it while this one waits
			there.Done()
			<-release
			runtime.UnlockOSThread()
		})
	}
	there.Wait()
	close(release)
	over.Wait()
	runtime.GC() // which begins the collector's own goroutines
}
